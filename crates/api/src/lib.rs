//! Our own resources in the group `gateway.varnish-software.com`.
//!
//! Types only: what they mean is decided in `translate`.

mod gateway_class_parameters;

pub use gateway_class_parameters::{
    GatewayClassParameters, GatewayClassParametersSpec, TimeoutParameters, UserVclConfigMapRef,
};
