//! A scripted varnishd for tests: it connects to a [`ReverseListener`](crate::ReverseListener), authenticates,
//! and answers what the test wants, or misbehaves.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> varnishadm::Result<()> {
//! use std::time::Duration;
//! use varnishadm::fake::{Fake, Reply};
//! use varnishadm::{ReverseListener, Secret};
//!
//! let secret = Secret::new("hush");
//! let listener = ReverseListener::bind("127.0.0.1:0").await?;
//! let fake = Fake::new()
//!     .secret(&secret)
//!     .on("vcl.use", Reply::ok(""))
//!     .once("vcl.load", Reply::answer(106, "Message from VCC-compiler: …"))
//!     .on("vcl.load", Reply::ok("VCL compiled.\n"));
//! fake.connect(listener.local_addr());
//!
//! let admin = listener.accept(&secret, Duration::from_secs(5)).await?;
//! assert!(admin.vcl_load("a", "/a.vcl".as_ref(), Default::default()).await.is_err());
//! assert!(admin.vcl_load("b", "/b.vcl".as_ref(), Default::default()).await.is_ok());
//! assert_eq!(fake.commands(), ["vcl.load a /a.vcl auto", "vcl.load b /b.vcl auto"]);
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::secret::Secret;

mod session;
mod tokenizer;

pub use tokenizer::Tokenizer;

/// What varnishd 7.1.1 says when its child runs.
pub const BANNER: &str = "-----------------------------\n\
    Varnish Cache CLI 1.0\n\
    -----------------------------\n\
    Linux,6.1.0,x86_64,-junix,-sdefault,-sdefault,-hcritbit\n\
    varnish-7.1.1 revision 7cee1c581bead20e88d101ab3d72afb29f14d87a\n\
    \n\
    Type 'help' for command list.\n\
    Type 'quit' to close CLI session.\n";

/// What happens when a command has come in.
#[derive(Debug, Clone)]
pub enum Reply {
    Answer {
        status: u16,
        body: String,
    },
    /// The answer in pieces of so many bytes, with a pause between them.
    Pieces {
        status: u16,
        body: String,
        size: usize,
        pause: Duration,
    },
    /// The answer, after a while.
    Late {
        status: u16,
        body: String,
        after: Duration,
    },
    /// These bytes, as they are.
    Raw(Vec<u8>),
    /// These bytes, as they are, and then the connection is closed. None at all is death in mid-command.
    Die(Vec<u8>),
    /// No answer. The connection stays open.
    Silence,
}

impl Reply {
    pub fn ok(body: impl Into<String>) -> Self {
        Self::answer(200, body)
    }

    pub fn answer(status: u16, body: impl Into<String>) -> Self {
        Self::Answer { status, body: body.into() }
    }
}

type Respond = Box<dyn FnMut(&[String]) -> Option<Reply> + Send>;

/// A varnishd by script. Clones share the script and the record; each [`Fake::connect`] is one connection, and the
/// script goes on where the one before left it.
///
/// Unless the script says otherwise, it answers `ping` and `param.set` like the real one, and to all else
/// "Unknown request" (101).
#[derive(Clone)]
pub struct Fake {
    greeting: Greeting,
    script: Arc<Mutex<Script>>,
}

#[derive(Clone)]
enum Greeting {
    Banner(String),
    Challenge(Secret, String),
    Raw(Vec<u8>),
    Silence,
}

#[derive(Default)]
struct Script {
    rules: Vec<Rule>,
    respond: Option<Respond>,
    commands: Vec<Vec<String>>,
}

struct Rule {
    prefix: Vec<String>,
    reply: Reply,
    once: bool,
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}

impl Fake {
    /// One that asks for no authentication.
    pub fn new() -> Self {
        Self { greeting: Greeting::Banner(BANNER.to_owned()), script: Arc::default() }
    }

    /// Asks for authentication, with this secret. Comes after [`Fake::banner`], if both are used.
    #[must_use]
    pub fn secret(mut self, secret: &Secret) -> Self {
        let banner = match self.greeting {
            Greeting::Banner(banner) | Greeting::Challenge(_, banner) => banner,
            Greeting::Raw(_) | Greeting::Silence => BANNER.to_owned(),
        };
        self.greeting = Greeting::Challenge(secret.clone(), banner);
        self
    }

    #[must_use]
    pub fn banner(mut self, banner: &str) -> Self {
        self.greeting = Greeting::Banner(banner.to_owned());
        self
    }

    /// Greets with these bytes, as they are.
    #[must_use]
    pub fn greet_with(mut self, bytes: &[u8]) -> Self {
        self.greeting = Greeting::Raw(bytes.to_vec());
        self
    }

    #[must_use]
    pub fn greet_not_at_all(mut self) -> Self {
        self.greeting = Greeting::Silence;
        self
    }

    /// Replies so to each command that begins with these words. The first rule that fits counts.
    #[must_use]
    pub fn on(self, prefix: &str, reply: Reply) -> Self {
        self.rule(prefix, reply, false)
    }

    /// As [`Fake::on`], for one command only.
    #[must_use]
    pub fn once(self, prefix: &str, reply: Reply) -> Self {
        self.rule(prefix, reply, true)
    }

    /// Asks the function for each command that fits no rule.
    #[must_use]
    pub fn respond(self, respond: impl FnMut(&[String]) -> Option<Reply> + Send + 'static) -> Self {
        self.lock().respond = Some(Box::new(respond));
        self
    }

    fn rule(self, prefix: &str, reply: Reply, once: bool) -> Self {
        let prefix = prefix.split_whitespace().map(str::to_owned).collect();
        self.lock().rules.push(Rule { prefix, reply, once });
        self
    }

    /// Connects, in a task of its own. Abort it to have varnishd vanish.
    ///
    /// It ends by itself when the connection is closed by either side, and does not come back: a test that wants
    /// varnishd's second try calls this again.
    pub fn connect(&self, address: SocketAddr) -> JoinHandle<()> {
        let fake = self.clone();
        tokio::spawn(async move {
            if let Err(error) = session::run(&fake, address).await {
                tracing::debug!(%error, "the fake varnishd's connection ended");
            }
        })
    }

    /// The commands so far, words joined by blanks; without the authentication and the raising of cli_limit that
    /// every connection begins with.
    pub fn commands(&self) -> Vec<String> {
        self.words().into_iter().map(|words| words.join(" ")).collect()
    }

    /// As [`Fake::commands`], word by word.
    pub fn words(&self) -> Vec<Vec<String>> {
        self.lock().commands.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Script> {
        // A panic of a test's own function has failed that test already.
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reply(&self, words: &[String]) -> Reply {
        let mut script = self.lock();
        let setup = words.first().is_some_and(|word| word == "param.set")
            && words.get(1).is_some_and(|word| word == "cli_limit");
        if !setup {
            script.commands.push(words.to_vec());
        }
        if let Some(index) = script.rules.iter().position(|rule| words.starts_with(&rule.prefix)) {
            return match script.rules[index].once {
                true => script.rules.remove(index).reply,
                false => script.rules[index].reply.clone(),
            };
        }
        if let Some(reply) = script.respond.as_mut().and_then(|respond| respond(words)) {
            return reply;
        }
        match words.first().map(String::as_str) {
            Some("ping") => Reply::ok("PONG 1794756402 1.0"),
            Some("param.set") => Reply::ok(""),
            _ => Reply::answer(101, "Unknown request.\nType 'help' for more info.\n"),
        }
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fake").field("commands", &self.commands()).finish_non_exhaustive()
    }
}
