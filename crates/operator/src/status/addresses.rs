//! The addresses of a Gateway, read from its Service.

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use translate::Addresses;

/// The addresses for the status, and the reason if an address cannot be used. If the Gateway asks for addresses, these are
/// returned once its Service has all of them; otherwise those that the Service was given.
pub(super) fn for_status(asked: &Addresses, service: &Service) -> (Vec<Value>, Option<String>) {
    if asked.usable.is_empty() {
        return (given(service), asked.unusable.clone());
    }
    let external = service.spec.iter().flat_map(|spec| spec.external_ips.iter().flatten());
    let balanced =
        service.status.iter().filter_map(|status| status.load_balancer.as_ref()?.ingress.as_ref()).flatten();
    let there: Vec<&String> = external.chain(balanced.filter_map(|ingress| ingress.ip.as_ref())).collect();
    let missing: Vec<&str> =
        asked.usable.iter().filter(|ip| !there.contains(ip)).map(String::as_str).collect();
    if missing.is_empty() {
        let asked_for = asked.usable.iter().map(|ip| json!({ "type": "IPAddress", "value": ip }));
        return (asked_for.collect(), asked.unusable.clone());
    }
    let message = format!(
        "The Service does not have {}, which spec.addresses asks for: the load balancer has not given it. Ask for one of its \
         addresses, or for none",
        missing.join(", ")
    );
    (Vec::new(), Some(asked.unusable.clone().unwrap_or(message)))
}

/// The addresses that a Service was given.
pub(super) fn given(service: &Service) -> Vec<Value> {
    let of_type = |kind: &str, value: &str| json!({ "type": kind, "value": value });
    let Some(spec) = &service.spec else { return Vec::new() };
    if spec.type_.as_deref() == Some("LoadBalancer") {
        let ingress =
            service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
        return ingress
            .into_iter()
            .flatten()
            .filter_map(|ingress| match (&ingress.ip, &ingress.hostname) {
                (Some(ip), _) => Some(of_type("IPAddress", ip)),
                (None, Some(name)) => Some(of_type("Hostname", name)),
                (None, None) => None,
            })
            .collect();
    }
    let ips = spec.cluster_ips.iter().flatten().filter(|ip| *ip != "None");
    ips.map(|ip| of_type("IPAddress", ip)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(external: &Value, balanced: &Value) -> Service {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Service", "metadata": {},
            "spec": {"type": "LoadBalancer", "externalIPs": external},
            "status": {"loadBalancer": {"ingress": balanced}}}))
        .unwrap()
    }

    #[test]
    fn a_gateway_has_the_addresses_that_it_asks_for_and_no_others() {
        let asked =
            Addresses { usable: vec!["192.0.2.1".into(), "192.0.2.2".into()], ..Addresses::default() };
        let all = service(&json!(["192.0.2.2"]), &json!([{"ip": "192.0.2.1"}, {"ip": "192.0.2.9"}]));
        let address = |ip: &str| json!({"type": "IPAddress", "value": ip});
        assert_eq!(for_status(&asked, &all), (vec![address("192.0.2.1"), address("192.0.2.2")], None));
        let (none, why) = for_status(&asked, &service(&json!(["192.0.2.2"]), &json!([])));
        assert!(none.is_empty() && why.unwrap().starts_with("The Service does not have 192.0.2.1,"));
        // Without requested addresses the Gateway has those that its Service was given.
        let given = for_status(&Addresses::default(), &service(&json!([]), &json!([{"ip": "192.0.2.9"}])));
        assert_eq!(given, (vec![address("192.0.2.9")], None));
    }
}
