//! The listeners of a Gateway: all of them where the front carries HTTP ([`http`]), else those of HTTPS and TLS, whose decrypted
//! bytes go on to varnishd's unix socket with PROXY v2.
//!
//! Also opens TLS connections to backends, because varnishd cannot verify certificates (`run_backends`).
//!
//! Takes a `Config` and follows it as it changes. Guarantees that a connection keeps what it began with: new certificates,
//! closed ports and changed limits are for later connections; routes are for later requests.

mod accept;
mod addresses;
mod answering;
mod backend;
mod backends;
mod bind;
mod config;
mod connection;
mod counters;
mod entrance;
mod event;
mod gate;
mod hello;
mod hosts;
mod hot_limits;
mod http;
mod lanes;
mod observe;
pub mod proxy;
mod relay;
mod reported;
mod run;
pub mod sniff;
mod stream;
mod terminate;
mod tls_options;
mod trouble;
mod upstream;
mod validate;

pub use backend::{
    BackendCounters, BackendEvent, BackendFailure, BackendName, BackendSide, BackendTls, Peers, Profiles,
    Trust, run_backends,
};
pub use backends::{BackendGroup, Backends};
pub use config::{Action, Config, Host, HttpLimits, Limits, Listener, UdpLimits, UdpListener};
pub use counters::{Counters, Failure, Refusal, UpstreamFailure};
pub use entrance::ProxyProtocol;
pub use event::{Event, Shutdown};
pub use hot_limits::HotLimits;
pub use http::{Hot, Http, Mirrored, NotHot, Reason, SessionKey, Told, Uncached, Write};
pub use observe::{AccessLog, Finished, Observer, Upstream};
pub use router::counters::Way;
pub use router::forwarded::TrustedProxies as TrustedSources;
pub use run::{run, run_counted, run_events};
pub use stream::{Loss, Stream, StreamCounters, Transport};
pub use validate::{ClientMode, ClientValidation};
