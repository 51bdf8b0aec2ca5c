//! The addresses that a Gateway asks for (`spec.addresses`). Its Service gets them: a LoadBalancer the first as `loadBalancerIP`,
//! everything else as `externalIPs`.

use std::net::IpAddr;

use gateway_api::gateways::Gateway;

const IP_ADDRESS: &str = "IPAddress";

/// The result of `spec.addresses`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    /// In the order in which they are asked for. Empty: the Gateway takes the address that its Service gets.
    pub usable: Vec<String>,
    /// Why the Gateway is not accepted, if so: a type that is not supported.
    pub unsupported: Option<String>,
    /// Why the Gateway cannot be programmed, if so: addresses that no Service can have.
    pub unusable: Option<String>,
}

impl Addresses {
    pub fn of(gateway: &Gateway) -> Self {
        let mut addresses = Self::default();
        let (mut unsupported, mut unusable) = (Vec::new(), Vec::new());
        for (index, address) in gateway.spec.addresses.iter().flatten().enumerate() {
            let kind = address.r#type.as_deref().unwrap_or(IP_ADDRESS);
            if kind != IP_ADDRESS {
                unsupported
                    .push(format!("spec.addresses[{index}]: type {kind} is not supported: use {IP_ADDRESS}"));
                continue;
            }
            // One without a value may be any.
            let Some(value) = address.value.as_deref().filter(|value| !value.is_empty()) else { continue };
            match value.parse::<IpAddr>().ok().filter(|ip| is_usable(*ip)) {
                Some(ip) => {
                    let text = ip.to_string();
                    if !addresses.usable.contains(&text) {
                        addresses.usable.push(text);
                    }
                }
                None => unusable.push(format!(
                    "spec.addresses[{index}]: {value} cannot be the address of a Service: use one that is neither loopback, \
                     link-local, multicast nor unspecified"
                )),
            }
        }
        addresses.unsupported = (!unsupported.is_empty()).then(|| unsupported.join("; "));
        addresses.unusable = (!unusable.is_empty()).then(|| unusable.join("; "));
        addresses
    }
}

/// As the API server judges `externalIPs`.
fn is_usable(ip: IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(is_link_local || ip.is_loopback() || ip.is_multicast() || ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(addresses: &serde_json::Value) -> Addresses {
        let spec =
            serde_json::json!({"gatewayClassName": "varnish", "listeners": [], "addresses": addresses});
        let object = serde_json::json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "gw"}, "spec": spec});
        Addresses::of(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn ip_addresses_are_taken_once_and_in_order() {
        let addresses = of(&serde_json::json!([
            {"value": "192.0.2.2"}, {"type": "IPAddress", "value": "2001:DB8::1"}, {"type": "IPAddress"}, {"value": "192.0.2.2"}
        ]));
        assert_eq!(addresses.usable, ["192.0.2.2", "2001:db8::1"]);
        assert_eq!((addresses.unsupported, addresses.unusable), (None, None));
    }

    #[test]
    fn what_no_service_can_have_is_named() {
        let addresses = of(&serde_json::json!([
            {"type": "Hostname", "value": "a.example"}, {"value": "127.0.0.1"}, {"value": "192.0.2.1"}
        ]));
        assert_eq!(addresses.usable, ["192.0.2.1"]);
        assert!(addresses.unsupported.unwrap().contains("spec.addresses[0]: type Hostname is not supported"));
        assert!(
            addresses
                .unusable
                .unwrap()
                .contains("spec.addresses[1]: 127.0.0.1 cannot be the address of a Service")
        );
        for bad in ["169.254.1.1", "fe80::1", "224.0.0.1", "0.0.0.0", "::", "::1", "soon"] {
            assert!(of(&serde_json::json!([{"value": bad}])).unusable.is_some(), "{bad}");
        }
    }
}
