//! varnishd's `-s` arguments.

use api::{StorageParameters, StorageType};

use super::quantity::{bytes, varnish_size};

const MIB: u64 = 1 << 20;
/// Where nothing limits the memory.
const WITHOUT_LIMIT: u64 = 256 * MIB;
const TRANSIENT_WITHOUT_LIMIT: u64 = 128 * MIB;
/// varnishd itself, its log in shared memory, and the chaperone.
const OVERHEAD: u64 = 128 * MIB;
/// A storage that is smaller is of no use.
const LEAST: u64 = 16 * MIB;
/// Varnish's name of the storage for responses that are not cached. Without a size it would have no bounds.
const TRANSIENT: &str = "Transient";

/// The storages that the user wants. If one of them cannot be had as it stands, all are left out: with fewer than the user
/// thinks of, objects would go to unexpected places.
pub(crate) fn arguments(
    storages: Option<&Vec<StorageParameters>>,
    memory_limit: Option<u64>,
    problems: &mut Vec<String>,
) -> Vec<String> {
    let storages = storages.map_or(&[][..], Vec::as_slice);
    let before = problems.len();
    let mut arguments = Vec::new();
    let mut in_memory: u64 = 0;
    for storage in storages {
        match argument(storage) {
            Ok((argument, size)) => {
                arguments.extend(["-s".to_owned(), argument]);
                if storage.kind == StorageType::Malloc {
                    in_memory = in_memory.saturating_add(size);
                }
            }
            Err(problem) => problems.push(format!("storage {}: {problem}", storage.name)),
        }
    }
    if let Some(limit) = memory_limit
        && in_memory > limit
    {
        problems.push(format!(
            "storage: {} in memory is more than resources.limits.memory ({}): make the storage smaller or the limit \
             greater",
            varnish_size(in_memory),
            varnish_size(limit)
        ));
    }
    if problems.len() > before {
        problems.push("storage: the default is in use instead".to_owned());
        return Vec::new();
    }
    arguments
}

fn argument(storage: &StorageParameters) -> Result<(String, u64), String> {
    let name = &storage.name;
    let named = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !named {
        return Err("a name is made of letters, digits and underscores".to_owned());
    }
    let size = bytes(&storage.size)
        .filter(|size| *size > 0)
        .ok_or_else(|| format!("size `{}` is not valid: write it as 512Mi or 20Gi", storage.size))?;
    let text = varnish_size(size);
    match (storage.kind, storage.path.as_deref()) {
        (StorageType::Malloc, None) => Ok((format!("{name}=malloc,{text}"), size)),
        (StorageType::Malloc, Some(_)) => Err("only type file has a path: remove it".to_owned()),
        (StorageType::File, Some(path)) if path.starts_with('/') && !path.contains([',', ';', ' ']) => {
            Ok((format!("{name}=file,{path},{text}"), size))
        }
        (StorageType::File, Some(path)) => {
            Err(format!("path `{path}` must begin with a slash, and hold no comma, semicolon or blank"))
        }
        (StorageType::File, None) => Err("type file needs a path on a volume".to_owned()),
    }
}

/// A pod's storages where the user says nothing. Of what the limit leaves beside [`OVERHEAD`], five eighths are for the cache and one
/// is for what is not kept. The rest is for what varnishd needs beside each object, the index of objects, and threads.
pub(crate) fn default_argument(memory_limit: Option<u64>) -> String {
    format!("malloc,{}", varnish_size(share(memory_limit, 5, WITHOUT_LIMIT)))
}

pub(crate) fn default_transient(memory_limit: Option<u64>) -> String {
    format!("{TRANSIENT}=malloc,{}", varnish_size(share(memory_limit, 1, TRANSIENT_WITHOUT_LIMIT)))
}

/// Does one of these arguments name the storage for responses that are not cached?
pub fn names_transient(varnishd_args: &[String]) -> bool {
    let value = |argument: &String| argument.strip_prefix("-s").unwrap_or(argument).trim_start().to_owned();
    varnishd_args.iter().any(|argument| value(argument).starts_with("Transient="))
}

/// Does one of these arguments name another storage?
pub fn names_cache(varnishd_args: &[String]) -> bool {
    let mut rest = varnishd_args.iter();
    while let Some(argument) = rest.next() {
        let value = match argument.strip_prefix("-s") {
            Some("") => rest.next().map(String::as_str),
            given => given,
        };
        if value.is_some_and(|value| !value.starts_with("Transient=")) {
            return true;
        }
    }
    false
}

fn share(memory_limit: Option<u64>, eighths: u64, without_limit: u64) -> u64 {
    let size = memory_limit.map_or(without_limit, |limit| {
        let share = limit.saturating_sub(OVERHEAD) / 8 * eighths;
        share.max(LEAST.min(limit / 8))
    });
    // In whole mebibytes, for readability.
    if size >= MIB { size / MIB * MIB } else { size }
}

/// The storages that a pod's varnishd has, for people: `main: malloc, 512m; disk: file /cache/varnish.bin, 20g`.
pub fn told(varnishd_args: &[String], defaults: [&str; 2]) -> String {
    let arguments: Vec<&str> =
        varnishd_args.windows(2).filter(|pair| pair[0] == "-s").map(|pair| pair[1].as_str()).collect();
    let tell = |argument: &str| {
        let (name, rest) = argument.split_once('=').unwrap_or(("default", argument));
        let parts: Vec<&str> = rest.split(',').collect();
        match parts.as_slice() {
            [kind, path, size, ..] => format!("{name}: {kind} {path}, {size}"),
            [kind, size] => format!("{name}: {kind}, {size}"),
            _ => format!("{name}: {rest}"),
        }
    };
    let [cache, transient] = defaults;
    let mut all = Vec::new();
    if !names_cache(varnishd_args) {
        all.push(format!("{} (sized by the memory limit, where there is one)", tell(cache)));
    }
    all.extend(arguments.into_iter().map(tell));
    if !names_transient(varnishd_args) {
        all.push(tell(transient));
    }
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(kind: StorageType, size: &str, path: Option<&str>) -> StorageParameters {
        StorageParameters { name: "main".into(), kind, size: size.into(), path: path.map(str::to_owned) }
    }

    #[test]
    fn the_default_fits_into_the_limit() {
        for (limit, cache, transient) in [
            (None, "256m", "128m"),
            (Some(4 << 30), "2480m", "496m"),
            (Some(1 << 30), "560m", "112m"),
            (Some(256 << 20), "80m", "16m"),
            (Some(128 << 20), "16m", "16m"),
            (Some(32 << 20), "4m", "4m"),
        ] {
            assert_eq!(default_argument(limit), format!("malloc,{cache}"), "{limit:?}");
            assert_eq!(default_transient(limit), format!("Transient=malloc,{transient}"), "{limit:?}");
        }
        // Both, varnishd itself and the chaperone fit, with a quarter of the rest to spare.
        for limit in (256 << 20..64 << 30).step_by(1 << 28) {
            let all = OVERHEAD + share(Some(limit), 5, 0) + share(Some(limit), 1, 0);
            assert!(all + (limit - OVERHEAD) / 4 <= limit, "{limit}");
        }
    }

    #[test]
    fn people_are_told_what_there_is() {
        let args = |all: &[&str]| all.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        let told = |all: &[&str]| told(&args(all), ["malloc,256m", "Transient=malloc,128m"]);
        assert_eq!(
            told(&["-p", "x=1"]),
            "default: malloc, 256m (sized by the memory limit, where there is one); Transient: malloc, 128m"
        );
        assert_eq!(
            told(&["-s", "Transient=malloc,1g"]),
            "default: malloc, 256m (sized by the memory limit, where there is one); Transient: malloc, 1g"
        );
        assert_eq!(
            told(&["-s", "main=malloc,512m", "-s", "disk=file,/cache/v.bin,20g", "-p", "x=1"]),
            "main: malloc, 512m; disk: file /cache/v.bin, 20g; Transient: malloc, 128m"
        );
    }

    #[test]
    fn several_storages_become_several_arguments() {
        let mut problems = vec![];
        let file = StorageParameters {
            name: "disk".into(),
            ..storage(StorageType::File, "20Gi", Some("/cache/varnish.bin"))
        };
        let both = vec![storage(StorageType::Malloc, "512Mi", None), file];
        assert_eq!(
            arguments(Some(&both), Some(1 << 30), &mut problems),
            ["-s", "main=malloc,512m", "-s", "disk=file,/cache/varnish.bin,20g"]
        );
        assert_eq!(problems, [""; 0]);
        assert_eq!(arguments(None, None, &mut problems), [""; 0]);
    }

    #[test]
    fn what_cannot_be_is_said_and_left_out() {
        for (bad, part) in [
            (storage(StorageType::Malloc, "256m", None), "`256m` is not valid"),
            (storage(StorageType::Malloc, "2Gi", None), "more than resources.limits.memory (1g)"),
            (storage(StorageType::Malloc, "1Mi", Some("/x")), "only type file has a path"),
            (storage(StorageType::File, "1Mi", None), "needs a path"),
            (storage(StorageType::File, "1Mi", Some("/a,b")), "no comma"),
            (
                StorageParameters { name: "a=b".into(), ..storage(StorageType::Malloc, "1Mi", None) },
                "letters",
            ),
        ] {
            let mut problems = vec![];
            assert_eq!(arguments(Some(&vec![bad]), Some(1 << 30), &mut problems), [""; 0]);
            assert!(problems[0].contains(part), "{problems:?}");
        }
    }
}
