//! The manifests that a command line stands for. Their values were read by [`super::target`]: nothing in them needs quotes of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::target::{Host, RouteTo, Target};

/// Names of origins are looked up only where the class says so.
const NAMES: &str = "  parametersRef:
    group: gateway.varnish-software.com
    kind: GatewayClassParameters
    name: proxy
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata:
  name: proxy
spec:
  externalNames: Allow
";

/// A host, or all of them, and a path.
type Place<'a> = (Option<&'a str>, &'a str);

pub(super) struct Plan<'a> {
    pub(super) port: u16,
    pub(super) to: &'a [Target],
    pub(super) routes: &'a [RouteTo],
    pub(super) cache: Option<&'a str>,
    pub(super) tls: &'a [String],
    /// Certificate and key, in PEM, for all names of `tls`.
    pub(super) certificate: Option<(String, String)>,
}

impl fmt::Display for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "# For `varnish-gateway serve -f`, and with other Services for a cluster.
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata:
  name: varnish
spec:
  controllerName: varnish-software.com/gateway
",
        )?;
        if self.targets().any(|target| matches!(target.host, Host::Name(_))) {
            f.write_str(NAMES)?;
        }
        f.write_str(
            "---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: proxy
spec:
  gatewayClassName: varnish
  listeners:
",
        )?;
        self.listeners(f)?;
        let mut services: BTreeMap<&Target, String> = BTreeMap::new();
        for target in self.targets() {
            let next = format!("origin-{}", services.len() + 1);
            services.entry(target).or_insert(next);
        }
        for (number, ((host, path), targets)) in self.by_place().into_iter().enumerate() {
            route(f, number + 1, host, path, targets.iter().filter_map(|target| services.get(target)))?;
        }
        for (target, name) in &services {
            service(f, name, target)?;
        }
        if let Some(time) = self.cache {
            write!(
                f,
                "---
# Responses that do not say how long they may be kept are kept for this time.
apiVersion: gateway.varnish-software.com/v1alpha1
kind: VarnishCachePolicy
metadata:
  name: proxy
spec:
  targetRef:
    group: gateway.networking.k8s.io
    kind: Gateway
    name: proxy
  defaultTTL: {time}
"
            )?;
        }
        let Some((certificate, key)) = &self.certificate else { return Ok(()) };
        write!(
            f,
            "---
apiVersion: v1
kind: Secret
metadata:
  name: proxy
type: kubernetes.io/tls
stringData:
  tls.crt: |
{}  tls.key: |
{}",
            indented(certificate),
            indented(key)
        )
    }
}

impl<'a> Plan<'a> {
    fn targets(&self) -> impl Iterator<Item = &'a Target> {
        self.to.iter().chain(self.routes.iter().map(|route| &route.to))
    }

    fn listeners(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port;
        if self.tls.is_empty() {
            return write!(f, "    - name: http\n      protocol: HTTP\n      port: {port}\n");
        }
        for (number, host) in self.tls.iter().enumerate() {
            write!(
                f,
                "    - name: https-{}\n      protocol: HTTPS\n      port: {port}\n      hostname: \"{host}\"\n      tls:\n        \
                 certificateRefs:\n          - name: proxy\n",
                number + 1
            )?;
        }
        Ok(())
    }

    /// Origins by host and path, in the order of the command line.
    fn by_place(&self) -> Vec<(Place<'a>, Vec<&'a Target>)> {
        let mut places: Vec<(Place<'_>, Vec<&Target>)> = Vec::new();
        let named = self.routes.iter().map(|route| ((route.host.as_deref(), &*route.path), &route.to));
        // A request for a host that has routes goes to no route without hosts.
        let is_whole =
            |host: Option<&str>| self.routes.iter().any(|one| one.host.as_deref() == host && one.path == "/");
        let hosts = self.routes.iter().map(|route| route.host.as_deref()).chain([None]);
        let hosts: BTreeSet<Option<&str>> = hosts.filter(|host| !is_whole(*host)).collect();
        let others =
            hosts.into_iter().flat_map(|host| self.to.iter().map(move |target| ((host, "/"), target)));
        for (place, target) in named.chain(others) {
            match places.iter_mut().find(|(known, _)| *known == place) {
                Some((_, targets)) => targets.push(target),
                None => places.push((place, vec![target])),
            }
        }
        places
    }
}

fn route<'a>(
    f: &mut fmt::Formatter<'_>,
    number: usize,
    host: Option<&str>,
    path: &str,
    services: impl Iterator<Item = &'a String>,
) -> fmt::Result {
    write!(
        f,
        "---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: route-{number}
spec:
  parentRefs:
    - name: proxy
"
    )?;
    if let Some(host) = host {
        write!(f, "  hostnames:\n    - \"{host}\"\n")?;
    }
    write!(
        f,
        "  rules:\n    - matches:\n        - path:\n            type: PathPrefix\n            value: \"{path}\"\n      \
         backendRefs:\n"
    )?;
    for service in services {
        write!(f, "        - name: {service}\n          port: 80\n")?;
    }
    Ok(())
}

fn service(f: &mut fmt::Formatter<'_>, name: &str, target: &Target) -> fmt::Result {
    let port = target.port;
    write!(f, "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n")?;
    match &target.host {
        Host::Address(address) => {
            let at = std::net::SocketAddr::new(*address, port);
            write!(
                f,
                "  annotations:\n    gateway.varnish-software.com/endpoints: \"{at}\"\nspec:\n  ports:\n    - port: 80\n"
            )?;
        }
        Host::Name(host) => write!(
            f,
            "spec:\n  type: ExternalName\n  externalName: {host}\n  ports:\n    - port: 80\n      targetPort: {port}\n"
        )?,
    }
    let (true, Host::Name(host)) = (target.is_tls, &target.host) else { return Ok(()) };
    write!(
        f,
        "---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata:
  name: {name}
spec:
  targetRefs:
    - group: \"\"
      kind: Service
      name: {name}
  validation:
    hostname: {host}
    wellKnownCACertificates: System
"
    )
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}
