//! The storages of varnishd, read from its arguments: their sizes, which varnishd does not report to the VMOD, and the size of the storage
//! for responses that are not cached.

use std::path::Path;

const MIB: u64 = 1 << 20;
/// What varnishd has without `-s`.
const DEFAULT: &str = "default,100m";
/// The storage for responses that are not cached, as Varnish calls it. Without a size it has no limit.
const TRANSIENT: &str = "Transient";
/// Its default size: this part of the memory, and at least this many bytes.
const SHARE_OF_TRANSIENT: u64 = 8;
const LEAST_TRANSIENT: u64 = 16 * MIB;
/// The index of objects may take this part of the storages, and this part of the memory.
const INDEX_SHARE_OF_STORAGES: u64 = 4;
const INDEX_SHARE_OF_MEMORY: u64 = 8;
const LEAST_INDEX: u64 = 16 * MIB;
/// Transient must have room for this many slow clients at once. The buffer of one client is within these limits.
const SLOW_READERS: u64 = 4096;
const TRANSIT_BUFFER: (u64, u64) = (32 << 10, MIB);

/// One `-s`: its name, and its size in bytes, if the argument has one.
struct Storage {
    name: String,
    size: Option<u64>,
}

fn storages(arguments: &[String]) -> Vec<Storage> {
    let mut given: Vec<&str> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.strip_prefix("-s") {
            Some("") => given.extend(rest.next().map(String::as_str)),
            Some(value) => given.push(value),
            None => {}
        }
    }
    let mut nameless = 0;
    let mut all = Vec::new();
    for one in given {
        let (name, parts) = match one.split_once('=').filter(|(name, _)| !name.contains(',')) {
            Some((name, parts)) => (name.to_owned(), parts),
            None => {
                nameless += 1;
                (format!("s{}", nameless - 1), one)
            }
        };
        let mut parts = parts.split(',');
        let size = match parts.next() {
            Some("malloc" | "default" | "umem") => parts.next(),
            Some("file") => parts.nth(1),
            _ => None,
        };
        all.push(Storage { name, size: size.and_then(bytes) });
    }
    all
}

/// `s0=104857600 disk=21474836480`; storages without a size are left out.
pub(crate) fn sizes(arguments: &[String]) -> String {
    let told = |one: &Storage| Some(format!("{}={}", one.name, one.size?));
    storages(arguments).iter().filter_map(told).collect::<Vec<_>>().join(" ")
}

/// Values of `-s` that the arguments lack: Transient, bounded by the memory that we may use; and a cache, since varnishd makes its own
/// only where no storage is named.
pub(crate) fn added(arguments: &[String], memory: Option<u64>) -> Vec<String> {
    let all = storages(arguments);
    let (transient, kept): (Vec<&Storage>, Vec<_>) = all.iter().partition(|one| one.name == TRANSIENT);
    let mut added = Vec::new();
    if kept.is_empty() {
        added.push(DEFAULT.to_owned());
    }
    if let Some(memory) = memory
        && transient.is_empty()
    {
        let size = (memory / SHARE_OF_TRANSIENT).max(LEAST_TRANSIENT) / MIB;
        added.push(format!("{TRANSIENT}=malloc,{size}m"));
    }
    added
}

/// How many bytes of an uncached response are fetched before its client has read them.
pub(crate) fn transit_buffer(arguments: &[String]) -> u64 {
    let all = storages(arguments);
    let transient = all.iter().find(|one| one.name == TRANSIENT).and_then(|one| one.size);
    let (least, most) = TRANSIT_BUFFER;
    transient.map_or(most, |size| (size / SLOW_READERS).clamp(least, most))
}

/// How many bytes the index of objects may take.
pub(crate) fn index_bytes(arguments: &[String], memory: Option<u64>) -> u64 {
    let all = storages(arguments);
    let kept: u64 = all.iter().filter(|one| one.name != TRANSIENT).filter_map(|one| one.size).sum();
    let of_memory = memory.map_or(u64::MAX, |memory| memory / INDEX_SHARE_OF_MEMORY);
    (kept / INDEX_SHARE_OF_STORAGES).min(of_memory).max(LEAST_INDEX)
}

/// The memory that we may use: the limit of our control group, or that of the machine where it is less.
pub(crate) fn memory() -> Option<u64> {
    let (machine, group) = machine_and_group();
    [machine, group].into_iter().flatten().min()
}

/// The memory limit of our control group, where it has one.
pub(crate) fn limit_of_group() -> Option<u64> {
    let (machine, group) = machine_and_group();
    // Without a limit, some kernels report a number larger than the memory of any machine.
    group.filter(|group| machine.is_none_or(|machine| *group < machine))
}

fn machine_and_group() -> (Option<u64>, Option<u64>) {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(of_machine);
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let group = limits.iter().find_map(|path| of_group(&std::fs::read_to_string(Path::new(path)).ok()?));
    (machine, group)
}

/// `MemTotal:       24650724 kB`
fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// `max`, or bytes.
fn of_group(limit: &str) -> Option<u64> {
    limit.trim().parse().ok()
}

/// As varnishd reads sizes: `100m`, `1.5GB`.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix('b').unwrap_or(&text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Some((number * (1_u64 << shift) as f64) as u64).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn sizes_of(text: &str) -> String {
        sizes(&arguments(text))
    }

    #[test]
    fn each_is_told_by_the_name_that_varnishd_gives_it() {
        assert_eq!(sizes_of("-s malloc,1.5G -p a=-s"), "s0=1610612736");
        assert_eq!(
            sizes_of("-s main=malloc,512m -sdisk=file,/c=/v.bin,20GB"),
            "main=536870912 disk=21474836480"
        );
        assert_eq!(sizes_of("-s Transient=malloc,1m -s malloc -s file,/a,4k"), "Transient=1048576 s1=4096");
        assert_eq!(sizes_of("-s file,/a,50% -s malloc,0"), "");
    }

    #[test]
    fn transient_is_bounded_by_the_memory_unless_the_user_says() {
        let of = |text: &str, memory| added(&arguments(text), memory).join(" ");
        assert_eq!(of("-p x=1", Some(1 << 30)), "default,100m Transient=malloc,128m");
        assert_eq!(of("-s main=malloc,1g", Some(16 << 20)), "Transient=malloc,16m");
        assert_eq!(of("-s main=malloc,1g -s Transient=malloc,5g", Some(1 << 30)), "");
        assert_eq!(of("-sTransient=malloc", Some(1 << 30)), "default,100m");
        assert_eq!(of("-p x=1", None), "default,100m");
    }

    #[test]
    fn many_slow_readers_fit_into_transient() {
        let of = |text: &str| transit_buffer(&arguments(text));
        assert_eq!(of("-s Transient=malloc,112m"), 32 << 10);
        assert_eq!(of("-s Transient=malloc,512m"), 128 << 10);
        assert_eq!(of("-s Transient=malloc,20g"), 1 << 20);
        assert_eq!(of("-s Transient=malloc"), 1 << 20);
    }

    #[test]
    fn the_index_fits_beside_the_storages() {
        let of = |text: &str, memory| index_bytes(&arguments(text), memory) >> 20;
        assert_eq!(of("-s malloc,560m -s Transient=malloc,112m", Some(1 << 30)), 128);
        assert_eq!(of("-s malloc,256m", Some(64 << 30)), 64);
        assert_eq!(of("-s disk=file,/a,100g", Some(2 << 30)), 256);
        assert_eq!(of("-s malloc,1m", None), 16);
    }

    #[test]
    fn memory_is_that_of_the_group_or_the_machine() {
        assert_eq!(of_machine("MemTotal:       24650724 kB\nMemFree: 1 kB\n"), Some(25_242_341_376));
        assert_eq!(of_group("max\n"), None);
        assert_eq!(of_group("1073741824\n"), Some(1 << 30));
        assert!(memory().is_some_and(|bytes| bytes > 0));
    }
}
