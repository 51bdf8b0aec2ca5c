use crate::wire::Answer;

/// How varnishd introduces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Banner {
    /// `7.1.1`
    pub version: Option<String>,
    pub revision: Option<String>,
    /// `Linux,6.1.0,x86_64,-junix,-sdefault,-sdefault,-hcritbit`
    pub platform: Option<String>,
    /// Whether the child, which serves the traffic, was running when this was said.
    pub child_running: bool,
    pub text: String,
}

impl Banner {
    pub(crate) fn parse(answer: Answer) -> Self {
        let text = answer.body;
        let mut lines = text.lines().map(str::trim).skip_while(|line| !line.contains("CLI")).skip(2);
        let platform = lines.next().filter(|line| line.contains(','));
        let (version, revision) = lines.next().and_then(build).unzip();
        let revision = revision.flatten();
        Self {
            version: version.map(str::to_owned),
            revision: revision.map(str::to_owned),
            platform: platform.map(str::to_owned),
            child_running: !text.contains("Type 'start'"),
            text,
        }
    }
}

/// Version and revision, whatever the product: `varnish-7.1.1 revision 7cee1c58`, `vinyl-cache-9.0.1 revision 423648c4`.
fn build(line: &str) -> Option<(&str, Option<&str>)> {
    let (build, revision) = line.split_once(" revision ").map_or((line, None), |(a, b)| (a, Some(b)));
    let (_, version) = build.rsplit_once('-')?;
    version.starts_with(|first: char| first.is_ascii_digit()).then_some((version, revision))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Banner {
        Banner::parse(Answer { status: 200, body: body.into() })
    }

    #[test]
    fn the_banner_of_7_1() {
        let banner = parse(crate::fake::BANNER);
        assert_eq!(banner.version.as_deref(), Some("7.1.1"));
        assert_eq!(banner.revision.as_deref(), Some("7cee1c581bead20e88d101ab3d72afb29f14d87a"));
        assert_eq!(
            banner.platform.as_deref(),
            Some("Linux,6.1.0,x86_64,-junix,-sdefault,-sdefault,-hcritbit")
        );
        assert!(banner.child_running);
        assert!(
            !parse(&format!("{}Type 'start' to launch worker process.\n", crate::fake::BANNER)).child_running
        );
    }

    #[test]
    fn the_banner_of_vinyl_cache() {
        let banner = parse(
            "-----------------------------\nVinyl Cache CLI 1.0\n-----------------------------\n\
             Linux,6.18.44,x86_64,-jlinux,-sdefault,-sdefault,-hcritbit\nvinyl-cache-9.0.1 revision 423648c4\n",
        );
        assert_eq!(banner.version.as_deref(), Some("9.0.1"));
        assert_eq!(banner.revision.as_deref(), Some("423648c4"));
        assert!(banner.platform.is_some_and(|platform| platform.starts_with("Linux,6.18.44")));
    }

    #[test]
    fn a_banner_of_another_make_is_kept_as_text() {
        let banner = parse("Hello.\n");
        assert_eq!((&banner.version, &banner.revision, &banner.platform), (&None, &None, &None));
        assert_eq!(banner.text, "Hello.\n");
    }
}
