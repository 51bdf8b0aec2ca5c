//! What of the Gateway API is carried out, in the words of its conformance suite.

/// Published in every GatewayClass's status, and what the conformance suite tests.
pub const SUPPORTED: [&str; 45] = [
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayInfrastructure",
    "GatewayPort8080",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// In the CRDs of the experimental channel alone: with those of the standard channel the API server drops the fields, and a class that
/// declares them would promise what no route can ask for.
pub const EXPERIMENTAL: [&str; 3] =
    ["HTTPRouteRetry", "HTTPRouteRetryBackendTimeout", "HTTPRouteRetryConnectionError"];

/// What a GatewayClass declares where HTTPRoutes come from the CRD of this channel, which is `None` where it is unknown. In the order of
/// the API: by name.
pub fn supported(channel: Option<&str>) -> Vec<&'static str> {
    let more: &[&str] = if channel == Some("experimental") { &EXPERIMENTAL } else { &[] };
    let mut all: Vec<_> = SUPPORTED.iter().chain(more).copied().collect();
    all.sort_unstable();
    all
}

/// The versions of the Gateway API's CRDs that this release was made for: `1.{minor}`.
pub const MINOR_VERSIONS: std::ops::RangeInclusive<u32> = 2..=6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_experimental_channel_are_declared_where_its_crds_are() {
        for channel in [None, Some("standard"), Some("Experimental")] {
            assert_eq!(supported(channel), SUPPORTED, "{channel:?}");
        }
        let all = supported(Some("experimental"));
        assert_eq!(all.len(), SUPPORTED.len() + EXPERIMENTAL.len());
        assert!(all.is_sorted() && EXPERIMENTAL.iter().all(|name| all.contains(name)));
    }
}
