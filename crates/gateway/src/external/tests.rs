use model::ExternalPort;

use super::*;

fn names(host: &str, port: u16) -> ExternalNames {
    let ports = [ExternalPort { port, ..ExternalPort::default() }].into();
    let services = [("shop/api".to_owned(), ExternalName { host: host.to_owned(), ports })].into();
    ExternalNames { public_only: false, services }
}

fn slice(service: &str) -> Arc<EndpointSlice> {
    let json = serde_json::json!({
        "metadata": {"name": "s", "namespace": "shop", "labels": {SERVICE_NAME_LABEL: service}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}],
    });
    Arc::new(serde_json::from_value(json).unwrap())
}

#[tokio::test]
async fn a_slice_that_has_not_changed_is_the_same_and_others_of_its_service_are_left_out() {
    // No server listens there.
    let settings = Settings { servers: vec![([127, 0, 0, 1], 9).into()], ..Settings::default() };
    let mut externals = Externals::new(settings);
    let (one, other) = (names("api.example", 80), names("api.example", 81));
    externals.want([&one]);
    let mut made = |of: &ExternalNames| externals.beside(Some(of), vec![slice("api"), slice("web")]);
    let (first, second, third) = (made(&one), made(&one), made(&other));
    assert_eq!(first.len(), 2, "the slice that claims to be of shop/api is left out");
    assert!(Arc::ptr_eq(&first[1], &second[1]));
    assert!(!Arc::ptr_eq(&second[1], &third[1]));
    assert_eq!(third[1].ports.as_ref().unwrap()[0].port, Some(81));
}
