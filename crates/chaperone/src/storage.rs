//! How much varnishd's storages hold, by its arguments: varnishd itself does not tell the VMOD.

/// What varnishd has without `-s`.
const DEFAULT: &str = "default,100m";

/// `s0=104857600 disk=21474836480`; those whose size is not said are left out.
pub(crate) fn sizes(arguments: &[String]) -> String {
    let mut given: Vec<&str> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.strip_prefix("-s") {
            Some("") => given.extend(rest.next().map(String::as_str)),
            Some(value) => given.push(value),
            None => {}
        }
    }
    if given.is_empty() {
        given.push(DEFAULT);
    }
    let mut nameless = 0;
    let mut told = Vec::new();
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
        if let Some(bytes) = size.and_then(bytes) {
            told.push(format!("{name}={bytes}"));
        }
    }
    told.join(" ")
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

    fn sizes_of(arguments: &str) -> String {
        sizes(&arguments.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn each_is_told_by_the_name_that_varnishd_gives_it() {
        assert_eq!(sizes_of("-p x=1"), "s0=104857600");
        assert_eq!(sizes_of("-s malloc,1.5G -p a=-s"), "s0=1610612736");
        assert_eq!(
            sizes_of("-s main=malloc,512m -sdisk=file,/c=/v.bin,20GB"),
            "main=536870912 disk=21474836480"
        );
        assert_eq!(sizes_of("-s Transient=malloc,1m -s malloc -s file,/a,4k"), "Transient=1048576 s1=4096");
        assert_eq!(sizes_of("-s file,/a,50% -s malloc,0"), "");
    }
}
