//! What the tests are made of: a scene (a directory of manifests), origins, the gateway, a client.

pub(crate) mod authority;
pub(crate) mod calls;
pub(crate) mod client;
pub(crate) mod manifests;
pub(crate) mod origin;
pub(crate) mod ports;
pub(crate) mod processes;
pub(crate) mod program;
pub(crate) mod scene;
pub(crate) mod tls;
pub(crate) mod wait;

pub(crate) use authority::{Authority, Leaf, PickyOrigin, TlsOrigin, config_map};
pub(crate) use client::{Ask, Connection, Response, get};
pub(crate) use manifests::{
    SHOP_BY_TLS, cache_policy, class, front_carries_http, gateway, gateway_of, parameters, route, route_to,
    secret, service, shop_on, stream_route, user_vcl,
};
pub(crate) use origin::Origin;
pub(crate) use ports::free_port;
pub(crate) use program::Program;
pub(crate) use scene::Scene;
pub(crate) use tls::{Certificate, Handshake, get_with, s_client};
pub(crate) use wait::{PATIENCE, until, wait_for};
