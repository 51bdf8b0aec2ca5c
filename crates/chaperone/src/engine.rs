//! The cache engine that runs: Varnish Cache or Vinyl Cache, and its version.
//!
//! Upstream Varnish Cache was renamed Vinyl Cache in 2026, with its programs: `vinyld`, `vinylstat`, `vinylncsa`. Debian's package
//! has both names for each. Other products kept the old names, so the engine is known by what `-V` prints, not by the
//! program's name. Everything that differs between engines in how they are started and read is decided here.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Whose names the programs have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// `varnishd`, `varnishstat`, `varnishncsa`
    Varnish,
    /// `vinyld`, `vinylstat`, `vinylncsa`
    Vinyl,
}

impl Names {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Varnish => "varnish",
            Self::Vinyl => "vinyl",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Varnish => Self::Vinyl,
            Self::Vinyl => Self::Varnish,
        }
    }

    /// `d`, `stat`, `ncsa`
    fn program(self, suffix: &str) -> String {
        format!("{}{suffix}", self.prefix())
    }
}

const VINYL: &str = "Vinyl Cache";

/// What `-V` prints: `vinyld (vinyl-cache-9.0.1 revision 42…)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// `Varnish Cache`, `Vinyl Cache`; the name that it gives itself for any other.
    pub product: String,
    /// `9.0.1`
    pub version: String,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.product, self.version)
    }
}

impl Engine {
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.lines().next()?.split_once('(')?;
        let (name, version) = rest.split([' ', ')']).next()?.rsplit_once('-')?;
        if !version.starts_with(|first: char| first.is_ascii_digit()) {
            return None;
        }
        let product = match name {
            "varnish" => "Varnish Cache",
            "vinyl-cache" => VINYL,
            other => other,
        };
        Some(Self { product: product.to_owned(), version: version.to_owned() })
    }

    fn is_vinyl(&self) -> bool {
        self.product == VINYL
    }

    /// Asks the program for its version.
    fn of(daemon: &Path) -> Option<Self> {
        let said = Command::new(daemon).arg("-V").stdin(Stdio::null()).output().ok()?;
        let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        Self::parse(&err).or_else(|| Self::parse(&out))
    }
}

/// The engine that this process runs.
#[derive(Debug)]
struct Chosen {
    names: Names,
    engine: Option<Engine>,
}

static CHOSEN: OnceLock<Chosen> = OnceLock::new();

/// Chooses the engine of this process, once, and returns its daemon: `daemon` if it is given, else by `names`, else what is in PATH,
/// `varnishd` before `vinyld`.
pub fn choose(daemon: Option<&Path>, names: Option<Names>) -> PathBuf {
    let names = names.or_else(|| daemon.and_then(named)).unwrap_or_else(|| {
        let is_there = |names: &Names| is_in_path(&names.program("d"));
        [Names::Varnish, Names::Vinyl].into_iter().find(is_there).unwrap_or(Names::Varnish)
    });
    let daemon = daemon.map_or_else(|| names.program("d").into(), Path::to_owned);
    let chosen = CHOSEN.get_or_init(|| Chosen { names, engine: Engine::of(&daemon) });
    if let Some(engine) = &chosen.engine {
        tracing::debug!("the cache engine is {engine} ({})", daemon.display());
    }
    daemon
}

/// The engine that was chosen, where its version could be read.
pub fn chosen() -> Option<&'static Engine> {
    CHOSEN.get()?.engine.as_ref()
}

/// A format of varnishncsa, with the name that this engine gives to its own fields: `%{Varnish:hitmiss}x`, `%{Vinyl:hitmiss}x`. A
/// wrong name makes the program exit.
pub(crate) fn log_format(format: &str) -> String {
    // A sidecar runs no daemon, and asks the tool itself.
    static ASKED: OnceLock<Option<Engine>> = OnceLock::new();
    let engine = chosen().or_else(|| ASKED.get_or_init(|| Engine::of(Path::new(&tool("ncsa")))).as_ref());
    translate::pods::log_format(format, engine.is_some_and(Engine::is_vinyl))
}

/// One of the engine's tools: `stat`, `ncsa`. By the names of its daemon if that tool is in PATH, else by the other names if that one
/// is: a sidecar has chosen no daemon, and the file of a daemon may have any name.
pub(crate) fn tool(suffix: &str) -> String {
    let names = CHOSEN.get().map_or(Names::Varnish, |chosen| chosen.names);
    tool_of(names, suffix, is_in_path)
}

fn tool_of(names: Names, suffix: &str, is_there: impl Fn(&str) -> bool) -> String {
    let [own, other] = [names, names.other()].map(|names| names.program(suffix));
    if !is_there(&own) && is_there(&other) { other } else { own }
}

/// Parameters that we set, and that some engines do not know: these refuse them and serve without. The user's own arguments win.
pub(crate) fn optional_parameters(
    arguments: &[String],
    transit_buffer: u64,
) -> impl Iterator<Item = (&'static str, String)> {
    // A large uncached response to a slow client is not held in memory as a whole. Varnish Cache 7.1 cannot do this.
    let ours = [("transit_buffer", format!("{transit_buffer}b"))];
    ours.into_iter().filter(move |(name, _)| !arguments.iter().any(|argument| argument.contains(name)))
}

/// By the name of the daemon's file. Its tools have names alike.
fn named(daemon: &Path) -> Option<Names> {
    let name = daemon.file_name()?.to_str()?;
    [Names::Varnish, Names::Vinyl].into_iter().find(|names| name == names.program("d"))
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_known_by_what_it_says_of_itself() {
        let engine = |text: &str| Engine::parse(text).map(|engine| engine.to_string());
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            engine("varnishd (varnish-7.1.1 revision 7cee1c58)\nCopyright"),
            some("Varnish Cache 7.1.1")
        );
        assert_eq!(engine("vinyld (vinyl-cache-9.0.1 revision 42)\n"), some("Vinyl Cache 9.0.1"));
        // Debian's Vinyl Cache by its old name.
        assert_eq!(engine("varnishd (vinyl-cache-9.0.1)"), some("Vinyl Cache 9.0.1"));
        assert_eq!(engine("varnishd (varnish-plus-6.0.14r4 revision 1)"), some("varnish-plus 6.0.14r4"));
        for other in ["", "varnishd", "varnishd (varnish-trunk revision 1)", "bash: varnishd (not-found)"] {
            assert_eq!(engine(other), None, "{other:?}");
        }
    }

    #[test]
    fn formats_name_fields_as_the_engine_does() {
        let vinyl = Engine::parse("varnishncsa (vinyl-cache-9.0.1)").unwrap();
        assert!(vinyl.is_vinyl());
        assert!(!Engine::parse("varnishncsa (varnish-7.7.0 revision 1)").unwrap().is_vinyl());
        let format = translate::pods::log_format;
        let [old, new] =
            ["%h %{Varnish:hitmiss}x %{Varnish:handling}x", "%h %{Vinyl:hitmiss}x %{Vinyl:handling}x"];
        assert_eq!(format(old, true), new);
        assert_eq!(format(new, false), old);
        assert_eq!(format(old, false), old);
    }

    #[test]
    fn tools_have_the_names_of_their_daemon() {
        assert_eq!(named(Path::new("/usr/sbin/vinyld")), Some(Names::Vinyl));
        assert_eq!(named(Path::new("varnishd")), Some(Names::Varnish));
        assert_eq!(named(Path::new("/opt/wrapper.sh")), None);
        assert_eq!(Names::Vinyl.program("ncsa"), "vinylncsa");
        assert_eq!(Names::Varnish.program("stat"), "varnishstat");
    }

    #[test]
    fn tools_are_those_that_are_installed() {
        let tool = |names, installed: &[&str]| tool_of(names, "ncsa", |program| installed.contains(&program));
        assert_eq!(tool(Names::Varnish, &["vinylncsa"]), "vinylncsa");
        assert_eq!(tool(Names::Vinyl, &["varnishncsa"]), "varnishncsa");
        assert_eq!(tool(Names::Vinyl, &["varnishncsa", "vinylncsa"]), "vinylncsa");
        assert_eq!(tool(Names::Varnish, &[]), "varnishncsa");
    }

    #[test]
    fn arguments_of_the_user_come_before_our_parameters() {
        let ours = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
            optional_parameters(&arguments, 4096).collect::<Vec<_>>()
        };
        assert_eq!(ours(&["-p", "thread_pools=1"]), [("transit_buffer", "4096b".to_owned())]);
        assert!(ours(&["-p", "transit_buffer=1m"]).is_empty());
    }
}
