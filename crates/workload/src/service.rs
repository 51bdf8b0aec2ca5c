//! The Service in front of a Gateway's pods.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::metadata::Owner;
use super::ports::Ports;
use translate::pods::{ServiceSettings, Workload};

pub(super) fn service(owner: &Owner<'_>, settings: &Workload, ports: &Ports<'_>) -> Service {
    let ServiceSettings {
        kind,
        annotations,
        labels,
        load_balancer_class,
        load_balancer_source_ranges,
        external_traffic_policy,
        addresses,
    } = &settings.service;
    // Of several, a LoadBalancer can be asked for one.
    let balanced = usize::from(*kind == "LoadBalancer");
    let external = addresses.get(balanced.min(addresses.len())..).unwrap_or_default();
    let of_protocol = |protocol: &'static str| {
        move |(port, socket): (&u16, &String)| ServicePort {
            name: Some(socket.clone()),
            port: i32::from(*port),
            protocol: Some(protocol.to_owned()),
            target_port: Some(IntOrString::Int(i32::from(ports.target(*port)))),
            ..ServicePort::default()
        }
    };
    let of_listeners =
        ports.public.iter().map(of_protocol("TCP")).chain(ports.datagrams.iter().map(of_protocol("UDP")));
    Service {
        metadata: ObjectMeta {
            labels: Some(owner.labels(labels)),
            annotations: owner.annotations(annotations),
            ..owner.own()
        },
        spec: Some(ServiceSpec {
            type_: Some((*kind).to_owned()),
            selector: Some(owner.pod_labels()),
            ports: Some(of_listeners.collect()),
            load_balancer_class: load_balancer_class.clone(),
            load_balancer_ip: addresses.first().filter(|_| balanced > 0).cloned(),
            external_ips: (!external.is_empty()).then(|| external.to_vec()),
            load_balancer_source_ranges: load_balancer_source_ranges.clone(),
            external_traffic_policy: external_traffic_policy.map(str::to_owned),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
