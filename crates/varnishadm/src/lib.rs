//! varnishd's CLI, in reverse mode: `varnishd -M host:port` connects to us.
//!
//! ```no_run
//! # async fn example() -> varnishadm::Result<()> {
//! use std::time::Duration;
//! use varnishadm::{LoadState, ReverseListener, Secret};
//!
//! let secret = Secret::generate()?;
//! secret.write("/run/gateway/secret".as_ref())?;
//! let listener = ReverseListener::bind("127.0.0.1:0").await?;
//! // … start varnishd -M {listener.local_addr()} -S /run/gateway/secret …
//! let admin = listener.accept(&secret, Duration::from_secs(30)).await?;
//! admin.vcl_load("main_1", "/run/gateway/main.vcl".as_ref(), LoadState::Auto).await?;
//! admin.vcl_use("main_1").await?;
//! # Ok(())
//! # }
//! ```
//!
//! Takes: a listening socket and a secret. Guarantees: the answer that a command gets is the answer to that
//! command; when that is in doubt (time-out, cut or garbled answer), the connection is closed, every later call
//! says so, and varnishd comes back to [`ReverseListener::accept`] by itself, within a second or two. Never:
//! logs a secret or a VCL text, starts or ends a process, retries a command.

mod admin;
mod banner;
mod connection;
mod error;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod listener;
mod secret;
mod wire;

pub use admin::Admin;
pub use admin::backend::Backend;
pub use admin::child::{ChildState, Pids};
pub use admin::vcl::{LoadState, Temperature, Vcl, VclLabel, VclState, VclStatus};
pub use banner::Banner;
pub use error::{Error, Result};
pub use listener::ReverseListener;
pub use secret::{Secret, random_text};
pub use wire::{ANSWER_LIMIT, Answer};
