//! The table of kinds: what each kind is, in one place.
//!
//! `kinds!(with)` calls the macro `with` with all rows. [`crate::Snapshot`], the file source (`Kind`, `Object`, admission) and the
//! cluster source (watches, missing and unreadable objects) are made from it.
//!
//! A row: `Name: type, field of the snapshot, "kind", group, [versions, the preferred one first], scope, how it is described and
//! checked when it is read from files`, and `else stand-in "its effect"` where a refused object must not merely be absent.
//! Names of functions and groups are looked up where a row is used.
//!
//! - `custom`: defined by CustomResourceDefinitions, watched by the operator. One that a cluster lacks is reported, and without effect.
//! - `builtin`: part of every cluster, watched by the operator. `when` names the function that compares two versions of an object.
//! - `other`: read in a way of their own.

/// Calls a macro with the table of kinds.
#[macro_export]
macro_rules! kinds {
    ($with:ident) => {
        $with! {
            custom {
                GatewayClass: gateway_api::gatewayclasses::GatewayClass, gateway_classes, "GatewayClass", GATEWAY, ["v1", "v1beta1"], Cluster,
                    gateway_class::describe, no_rules;
                Gateway: gateway_api::gateways::Gateway, gateways, "Gateway", GATEWAY, ["v1", "v1beta1"], Namespaced,
                    gateway::describe, gateway::rules;
                ListenerSet: gateway_api::listenersets::ListenerSet, listener_sets, "ListenerSet", GATEWAY, ["v1"], Namespaced,
                    listener_set::describe, listener_set::rules,
                    else listener_set "its listeners serve nothing";
                HttpRoute: gateway_api::experimental::httproutes::HttpRoute, http_routes, "HTTPRoute", GATEWAY, ["v1", "v1beta1"], Namespaced,
                    http_route::describe, http_route::rules,
                    else http_route "the requests that it can be seen to be for get 500";
                GrpcRoute: gateway_api::experimental::grpcroutes::GrpcRoute, grpc_routes, "GRPCRoute", GATEWAY, ["v1"], Namespaced,
                    grpc_route::describe, grpc_route::rules,
                    else grpc_route "the calls that it can be seen to be for get UNAVAILABLE";
                TlsRoute: gateway_api::tlsroutes::TlsRoute, tls_routes, "TLSRoute", GATEWAY, ["v1"], Namespaced,
                    tls_route::describe, tls_route::rules,
                    else tls_route "connections for its hostnames are closed";
                TcpRoute: api::TcpRoute, tcp_routes, "TCPRoute", GATEWAY, ["v1", "v1alpha2"], Namespaced,
                    stream_route::describe, stream_route::rules,
                    else tcp_route "connections of its listeners are closed";
                UdpRoute: api::UdpRoute, udp_routes, "UDPRoute", GATEWAY, ["v1", "v1alpha2"], Namespaced,
                    stream_route::describe, stream_route::rules,
                    else udp_route "datagrams of its listeners are dropped";
                BackendTlsPolicy: gateway_api::backendtlspolicies::BackendTlsPolicy, backend_tls_policies, "BackendTLSPolicy", GATEWAY, ["v1"], Namespaced,
                    backend_tls_policy::describe, backend_tls_policy::rules,
                    else backend_tls_policy "requests to the Services that it targets get 500";
                ReferenceGrant: gateway_api::referencegrants::ReferenceGrant, reference_grants, "ReferenceGrant", GATEWAY, ["v1", "v1beta1"], Namespaced,
                    reference_grant::describe, no_rules;
                Parameters: api::GatewayClassParameters, parameters, "GatewayClassParameters", VARNISH, ["v1alpha1"], Cluster,
                    gateway_class::describe_parameters, gateway_class::parameter_rules;
                CachePolicy: api::VarnishCachePolicy, cache_policies, "VarnishCachePolicy", VARNISH, ["v1alpha1"], Namespaced,
                    cache::describe_policy, cache::policy_rules,
                    else cache_policy "its target is not cached";
            }
            builtin {
                Service: k8s_openapi::api::core::v1::Service, services, "Service", CORE, ["v1"], Namespaced,
                    service::describe, service::rules, when same_service;
                Namespace: k8s_openapi::api::core::v1::Namespace, namespaces, "Namespace", CORE, ["v1"], Cluster,
                    no_description, no_rules, when same_namespace;
                Ingress: k8s_openapi::api::networking::v1::Ingress, ingresses, "Ingress", NETWORKING, ["v1"], Namespaced,
                    ingress::describe, ingress::rules, when same_generation,
                    else ingress "requests for its hosts get 503";
                IngressClass: k8s_openapi::api::networking::v1::IngressClass, ingress_classes, "IngressClass", NETWORKING, ["v1"], Cluster,
                    ingress::describe_class, ingress::class_rules, when same_generation;
            }
            other {
                CacheInvalidation: api::VarnishCacheInvalidation, cache_invalidations, "VarnishCacheInvalidation", VARNISH,
                    ["v1alpha1"], Namespaced, cache::describe_invalidation, cache::invalidation_rules;
                EndpointSlice: k8s_openapi::api::discovery::v1::EndpointSlice, endpoint_slices, "EndpointSlice", DISCOVERY, ["v1"], Namespaced,
                    endpoint_slice::describe, endpoint_slice::rules;
                Secret: k8s_openapi::api::core::v1::Secret, secrets, "Secret", CORE, ["v1"], Namespaced,
                    secret::describe, secret::rules;
                ConfigMap: k8s_openapi::api::core::v1::ConfigMap, config_maps, "ConfigMap", CORE, ["v1"], Namespaced,
                    secret::describe_config_map, secret::rules;
            }
        }
    };
}
