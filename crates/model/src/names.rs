//! Names that users, operators and user VCL rely on. Changing one is a breaking change.

/// The controller that GatewayClasses name.
pub const CONTROLLER_NAME: &str = "varnish-software.com/gateway";
/// The API group of our own resources.
pub const API_GROUP: &str = "gateway.varnish-software.com";
/// SHA-256 over what varnishd or its pod needs at start.
pub const INFRA_HASH_ANNOTATION: &str = "varnish.io/infra-hash";

/// On everything that the operator makes.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
pub const MANAGED_BY: &str = "varnish-gateway";
/// The Gateway that an object was made for.
pub const GATEWAY_NAME_LABEL: &str = "gateway.networking.k8s.io/gateway-name";
/// Its namespace, since objects may lie in others.
pub const GATEWAY_NAMESPACE_LABEL: &str = "gateway.varnish-software.com/gateway-namespace";

/// The loopback socket over which the chaperone speaks to ghost.
pub const RELOAD_SOCKET: &str = "ghost-reload";
/// Its port in a pod.
pub const RELOAD_PORT: u16 = 1969;
/// Makes ghost read ghost.json again.
pub const RELOAD_PATH: &str = "/.varnish-ghost/reload";
/// What ghost serves now, as JSON.
pub const STATUS_PATH: &str = "/.varnish-ghost/status";
/// Makes every answer from then on end its connection.
pub const DRAIN_PATH: &str = "/.varnish-ghost/drain";
/// On an answer of the reload socket: why the reload failed.
pub const ERROR_HEADER: &str = "x-ghost-error";

/// Set on requests for user VCL: the socket `{proto}-{port}` that the request came in by.
pub const LISTENER_HEADER: &str = "X-Gateway-Listener";
/// Set on requests for user VCL: `namespace/name` of the HTTPRoute that was chosen.
pub const ROUTE_HEADER: &str = "X-Gateway-Route";
/// While it is there at the end of vcl_recv, the request passes the cache by.
pub const PASS_HEADER: &str = "X-Ghost-Pass";
/// Headers that begin so are ghost's alone: they never come from a client, and never reach an origin or a client.
pub const GHOST_PREFIX: &str = "X-Ghost-";
/// Headers that begin so never come from a client.
pub const GATEWAY_PREFIX: &str = "X-Gateway-";

/// The environment variable in which varnishd's child finds ghost.json, unless VCL names the file.
pub const GHOST_CONFIG_ENV: &str = "GHOST_CONFIG_PATH";

/// The key of the host table for routes without a hostname.
pub const ANY_HOST: &str = "*";

/// The socket name of a listener: `{proto}-{port}`.
pub fn socket_name(protocol: &str, port: u16) -> String {
    format!("{}-{port}", protocol.to_ascii_lowercase())
}

/// Scheme and port that a socket name stands for; `None` for names of another form.
pub fn socket_parts(socket: &str) -> Option<(&str, u16)> {
    let (protocol, port) = socket.rsplit_once('-')?;
    Some((protocol, port.parse().ok()?))
}
