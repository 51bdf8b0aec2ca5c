//! Names that users, operators and user VCL rely on. Changing one is a breaking change.

/// The controller that GatewayClasses name, unless an installation has a name of its own.
pub const CONTROLLER_NAME: &str = "varnish-software.com/gateway";
/// The controller that IngressClasses name, unless an installation has a name of its own.
pub const INGRESS_CONTROLLER: &str = "varnish-software.com/ingress";
/// The annotation of Ingresses from before there were IngressClasses.
pub const INGRESS_CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// On an IngressClass: Ingresses that name no class are of this one.
pub const DEFAULT_CLASS_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";
/// On an Ingress: the Varnish Service that serves it, `name` or `namespace/name`.
pub const VARNISH_SERVICE_ANNOTATION: &str = "ingress.varnish-cache.org/varnish-svc";
/// On a Service: it is a Varnish Service.
pub const VARNISH_SERVICE_LABEL: (&str, &str) = ("app", "varnish-ingress");
/// The label by which an EndpointSlice belongs to a Service of its namespace.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// The API group of the Gateway API.
pub const GATEWAY_API_GROUP: &str = "gateway.networking.k8s.io";
/// The API group of our own resources.
pub const API_GROUP: &str = "gateway.varnish-software.com";
/// SHA-256 over what varnishd or its pod needs at start.
pub const INFRA_HASH_ANNOTATION: &str = "varnish.io/infra-hash";

/// `appProtocol` of a Service's port whose server wants a PROXY v2 header before the bytes of each connection of a TCPRoute.
pub const PROXY_V2_APP_PROTOCOL: &str = "gateway.varnish-software.com/proxy-v2";

/// On everything that the operator makes.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
pub const MANAGED_BY: &str = "varnish-gateway";
/// On everything that an operator makes whose controller has another name than [`CONTROLLER_NAME`]: which one. Those without
/// the label are the default one's.
pub const CONTROLLER_LABEL: &str = "gateway.varnish-software.com/controller";
/// The Gateway that an object was made for.
pub const GATEWAY_NAME_LABEL: &str = "gateway.networking.k8s.io/gateway-name";
/// Its namespace, since objects may lie in others.
pub const GATEWAY_NAMESPACE_LABEL: &str = "gateway.varnish-software.com/gateway-namespace";

/// The loopback socket over which the chaperone speaks to ghost.
pub const RELOAD_SOCKET: &str = "ghost-reload";
/// The unix socket over which the front hands on what it has decrypted. Which listener it came in by, PROXY's destination
/// says.
pub const HTTPS_SOCKET: &str = "https";
/// The unix socket over which the front asks the cache, where it carries HTTP. Each request says whose it is, in [`CLIENT_HEADER`].
pub const FRONT_SOCKET: &str = "front";
/// On requests by [`FRONT_SOCKET`] and on no others: the client, as [`crate::identity::Identity`].
pub const CLIENT_HEADER: &str = "X-Ghost-Client";
/// On answers by [`FRONT_SOCKET`] and on no others: what the cache did, as one of [`crate::stats::CACHE_RESULTS`].
pub const RESULT_HEADER: &str = "X-Ghost-Result";
/// Between front and ghost: a request whose response may be stored by the front, and what ghost says of it.
pub const HOT_HEADER: &str = "X-Ghost-Hot";
/// For tests, in the environment of `serve`, `check`, `explain` and `operator`: `Auto` or `Varnish`, for Gateways whose
/// parameters have no `dataPath`.
pub const DEFAULT_DATA_PATH_ENV: &str = "VARNISH_GATEWAY_DEFAULT_DATA_PATH";
/// Beside ghost.json: the unix socket over which varnishd reaches backends that only the front can reach as their rule says: with TLS, by
/// HTTP/2, with timeouts, retries, mirrors. The front connects to the endpoint that
/// PROXY names, and verifies it.
pub const TLS_BACKENDS_SOCKET: &str = "backends.sock";
/// Makes ghost read ghost.json again.
pub const RELOAD_PATH: &str = "/.varnish-ghost/reload";
/// What ghost serves now, as JSON.
pub const STATUS_PATH: &str = "/.varnish-ghost/status";
/// What ghost has counted, as [`crate::stats::Stats`].
pub const STATS_PATH: &str = "/.varnish-ghost/stats";
/// Says that the VCL of the router that answers is in use now: the front may serve hot objects by its table. Answers as [`STATUS_PATH`].
pub const IN_USE_PATH: &str = "/.varnish-ghost/in-use";
/// Makes every answer from then on end its connection.
pub const DRAIN_PATH: &str = "/.varnish-ghost/drain";
/// Takes objects out of the cache: a POST of [`crate::invalidation::Order`].
pub const INVALIDATE_PATH: &str = "/.varnish-ghost/invalidate";
/// By which origins tag answers that are cached. Clients never see them on those.
pub const TAG_HEADERS: [&str; 2] = ["surrogate-key", "xkey"];
/// On an answer of the reload socket: why the reload failed.
pub const ERROR_HEADER: &str = "x-ghost-error";

/// Set on requests for user VCL: the socket `{proto}-{port}` that the request came in by.
pub const LISTENER_HEADER: &str = "X-Gateway-Listener";
/// Set on requests for user VCL: `namespace/name` of the HTTPRoute that was chosen.
pub const ROUTE_HEADER: &str = "X-Gateway-Route";
/// While it is there at the end of vcl_recv, the request bypasses the cache.
pub const PASS_HEADER: &str = "X-Ghost-Pass";
/// On objects in the cache, for bans: the client's host in lower case and without port. Clients never see it.
pub const CACHE_HOST_HEADER: &str = "x-cache-host";
/// On objects in the cache, for bans: the client's URL, without query parameters that do not count. Clients never see it.
pub const CACHE_URL_HEADER: &str = "x-cache-url";
/// On answers: what the cache did.
pub const CACHE_STATUS_HEADER: &str = "X-Cache";
/// Between vcl_backend_response and vcl_deliver: the origin failed, and a stale object is there to be served instead.
pub const RESCUE_HEADER: &str = "X-Ghost-Rescue";
/// On objects in the cache: for how many seconds after it was fresh the object may take the place of a failure.
pub const RESCUE_SECONDS_HEADER: &str = "X-Ghost-Stale";
/// As its value: the object must be validated before it is served stale, whatever a client takes.
pub const NEVER_STALE: &str = "never";
/// On a request that is looked up by what its origin has said in No-Vary-Search: which word of the origin that was.
pub const SEARCH_HEADER: &str = "X-Ghost-Search";
/// On requests of trusted clients, with the value `key`: Cache-Status is to show the cache key.
pub const DEBUG_HEADER: &str = "Cache-Debug";
/// On objects in the cache, and on orders of the front to invalidate: the namespace of the route.
pub const OWNER_HEADER: &str = "X-Ghost-Owner";
/// On objects in the cache: names of fields that only the client sees whose request fetched it.
pub const OMIT_HEADER: &str = "X-Ghost-Omit";
/// On objects in the cache: why and with which result the origin was asked, as Cache-Status has it.
pub const FORWARD_HEADER: &str = "X-Ghost-Forward";
/// Content-Range of a 206, on its way through Varnish.
pub const RANGE_HEADER: &str = "X-Ghost-Range";
/// On a request whose content is in its cache key: the method by which the origin is asked.
pub const METHOD_HEADER: &str = "X-Ghost-Method";
/// Headers that begin so are ghost's alone: they never come from a client, and never reach an origin or a client.
/// On a fetch whose answer is there: what went to the origin, `name: value`, or the name alone where nothing did. For another try.
pub const SENT_HEADER: &str = "X-Ghost-Sent";
pub const GHOST_PREFIX: &str = "X-Ghost-";
/// On requests to origins: through which gateways and CDNs they went (RFC 8586). A request with the Gateway's own id is refused.
pub const LOOP_HEADER: &str = "CDN-Loop";
/// The method of a request by [`FRONT_SOCKET`] that takes its URL out of the cache, and all that the headers below name. No client's
/// request comes with it: the front asks the cache by GET and HEAD alone.
pub const INVALIDATE_METHOD: &str = "INVALIDATE";
/// On such a request: one more URL of the same host.
pub const ALSO_HEADER: &str = "X-Ghost-Also";
/// On such a request: groups of the same host, as Cache-Group-Invalidation names them.
pub const GROUPS_HEADER: &str = "X-Ghost-Groups";
/// On such a request: tags of the response, where the front wants to store it. Its groups are in [`CACHE_GROUPS_HEADER`].
pub const TAGS_HEADER: &str = "X-Ghost-Tags";
/// The method of a request by [`FRONT_SOCKET`] that asks for the number of the newest invalidation, in [`ORDER_HEADER`].
pub const ORDER_METHOD: &str = "ORDER";
/// A number of an invalidation, as [`crate::kept::Order`]. On the answer to [`ORDER_METHOD`]: the newest one. On a request to invalidate: the
/// newest one when the POST was sent. On the answer to such a request: its own number, where the response to the POST may be stored.
pub const ORDER_HEADER: &str = "X-Ghost-Order";
/// On a request by [`FRONT_SOCKET`]: the front has the response to a POST, and the cache is to store it, as [`crate::kept::Kept`]. On the
/// miss that ghost hands to the front for it: the token alone.
pub const KEPT_HEADER: &str = "X-Ghost-Kept";
/// By which origins put responses into groups (RFC 9875). Clients see it.
pub const CACHE_GROUPS_HEADER: &str = "cache-groups";
/// On responses to unsafe methods: which groups have changed.
pub const GROUP_INVALIDATION_HEADER: &str = "cache-group-invalidation";
/// On the front's own answer to varnishd: the backend was not reached, or not verified, and was sent nothing. Its value is
/// what [`FRONT_PROOF_ENV`] says; from anyone else it means nothing.
pub const FRONT_HEADER: &str = "X-Ghost-Front";
/// On a miss that ghost hands to the front: the URL before all edits, where a filter of a backendRef needs it.
pub const MISS_URL_HEADER: &str = "X-Ghost-Url";
/// On the answer to it: the endpoint that answered.
pub const MISS_ENDPOINT_HEADER: &str = "X-Ghost-Endpoint";
/// On a request by [`FRONT_SOCKET`] whose client takes 103 Early Hints, and on the miss that ghost hands to the front for it: the number by
/// which the front finds the client.
pub const HINTS_HEADER: &str = "X-Ghost-Hints";

/// The environment variable in which varnishd's child finds ghost.json, unless VCL names the file.
pub const GHOST_CONFIG_ENV: &str = "GHOST_CONFIG_PATH";
/// The one in which it finds what the front's own answers carry: a secret of this start, which no origin knows.
pub const FRONT_PROOF_ENV: &str = "GHOST_FRONT_PROOF";
/// The one in which it finds where to open its control socket, a unix socket. Without it, it opens none.
pub const CONTROL_SOCKET_ENV: &str = "GHOST_CONTROL_SOCKET";
/// The one in which it finds what requests to that socket must carry: a secret of this start.
pub const CONTROL_TOKEN_ENV: &str = "GHOST_CONTROL_TOKEN";
/// The request header that carries it.
pub const CONTROL_TOKEN_HEADER: &str = "X-Ghost-Token";
/// The only Host that the control socket answers to.
pub const CONTROL_HOST: &str = "ghost";
/// The one in which it finds for how many seconds a WebSocket may last.
pub const UPGRADE_TOTAL_ENV: &str = "GHOST_UPGRADE_TOTAL_SECONDS";
/// The one in which it finds how many bytes each storage holds: `s0=104857600 disk=21474836480`.
pub const GHOST_STORAGE_ENV: &str = "GHOST_STORAGE";

/// The bytes that ghost's index of objects may take, in varnishd's environment.
pub const GHOST_INDEX_ENV: &str = "GHOST_INDEX_BYTES";

/// The file of the page that ghost and the front share for hot objects, in varnishd's environment. Without it, nothing is hot.
pub const HOT_PAGE_ENV: &str = "GHOST_HOT_PAGE";
/// Its name, beside ghost's control socket.
pub const HOT_PAGE: &str = "hot.page";
/// The bytes of the largest body that may be hot, in varnishd's environment.
pub const HOT_BYTES_ENV: &str = "GHOST_HOT_BYTES";

/// The key of the host table for routes without a hostname.
pub const ANY_HOST: &str = "*";

/// Ports that a Gateway's pod needs for itself: health and metrics, and varnishd's CLI.
pub const HEALTH_PORT: u16 = 8081;
pub const ADMIN_PORT: u16 = 6082;

/// The socket name of a listener: `{proto}-{port}`.
pub fn socket_name(protocol: &str, port: u16) -> String {
    format!("{}-{port}", protocol.to_ascii_lowercase())
}

/// Is it the name of a socket of datagrams (`udp-53`)? All others are TCP, and the two may have the same port.
pub fn is_udp_socket(socket: &str) -> bool {
    socket_parts(socket).is_some_and(|(protocol, _)| protocol == "udp")
}

/// Protocol (`http`, `https`, `tls`, `tcp`, `udp`) and port that a socket name stands for; `None` for names of another form.
pub fn socket_parts(socket: &str) -> Option<(&str, u16)> {
    let (protocol, port) = socket.rsplit_once('-')?;
    Some((protocol, port.parse().ok()?))
}

/// What [`CONTROLLER_LABEL`] says for a controller; `None` for the default one, whose objects have no such label.
pub fn controller_label(controller: &str) -> Option<String> {
    (controller != CONTROLLER_NAME).then(|| controller.replacen('/', "_", 1))
}

/// Whether a controller may have this name. GatewayClasses may name others, but no label could tell what they made.
pub fn is_controller_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric();
    let Some((domain, path)) = name.split_once('/') else { return false };
    let ends = |part: &str| part.starts_with(letter) && part.ends_with(letter);
    let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 63
        && ends(domain)
        && ends(path)
        && domain.split('.').all(|part| {
            part.starts_with(lower) && part.ends_with(lower) && part.chars().all(|c| lower(c) || c == '-')
        })
        && path.chars().all(|c| letter(c) || matches!(c, '-' | '.'))
}

/// The two keys under which a pair lies in the Secret that a Gateway's pods read. `name` is `namespace/name` of the Secret
/// that it comes from; namespaces have no dots, so the keys say it all.
pub fn certificate_keys(name: &str) -> Option<(String, String)> {
    let (namespace, name) = name.split_once('/')?;
    Some((format!("{namespace}.{name}.crt"), format!("{namespace}.{name}.key")))
}

/// `namespace/name` of the Secret whose chain lies under this key; `None` for other keys.
pub fn certificate_name(key: &str) -> Option<String> {
    let (namespace, name) = key.strip_suffix(".crt")?.split_once('.')?;
    (!namespace.is_empty() && !name.is_empty()).then(|| format!("{namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_has_a_domain_and_a_path_that_fit_into_a_label() {
        assert_eq!(controller_label(CONTROLLER_NAME), None);
        assert_eq!(controller_label("example.com/blue").as_deref(), Some("example.com_blue"));
        for good in [CONTROLLER_NAME, INGRESS_CONTROLLER, "example.com/blue-2.x"] {
            assert!(is_controller_name(good), "{good}");
        }
        let long = format!("example.com/{}", "a".repeat(60));
        for bad in [
            "",
            "blue",
            "/blue",
            "example.com/",
            "Example.com/a",
            "a..b/c",
            "a.b/c/d",
            "a.b/c_d",
            "a.b/-c",
            &long,
        ] {
            assert!(!is_controller_name(bad), "{bad}");
        }
    }

    #[test]
    fn sockets_of_all_protocols_have_a_port() {
        assert_eq!(socket_name("TCP", 5432), "tcp-5432");
        assert_eq!(socket_parts("tcp-5432"), Some(("tcp", 5432)));
        assert_eq!(socket_parts(&socket_name("UDP", 53)), Some(("udp", 53)));
        assert!(is_udp_socket("udp-53"));
        assert!(!is_udp_socket("tcp-53") && !is_udp_socket("udp") && !is_udp_socket("udp-99999"));
    }

    #[test]
    fn keys_of_certificates_lead_back_to_their_names() {
        let (chain, key) = certificate_keys("shop/www.example.com").unwrap();
        assert_eq!((chain.as_str(), key.as_str()), ("shop.www.example.com.crt", "shop.www.example.com.key"));
        assert_eq!(certificate_name(&chain).as_deref(), Some("shop/www.example.com"));
        for other in [key.as_str(), "ca.crt", ".crt", "shop.", "..crt"] {
            assert_eq!(certificate_name(other), None, "{other}");
        }
    }
}
