//! Private keys stay out of reach of varnishd, and so of user VCL, which reads files by `std.fileread`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::support::{Certificate, Handshake, Origin, Program, free_port, get};

/// Directories with keys cannot be hidden below /tmp, where varnishd's compiler works.
fn directory() -> tempfile::TempDir {
    let passable = fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().permissions(passable).tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Readable by file mode for every user: in a pod varnishd runs under the chaperone's own.
fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A main.vcl that tells the first lines of files.
fn telling_vcl(files: &[(&str, &Path)]) -> String {
    let vcl = |name: &str| {
        fs::read_to_string(format!("{}/../translate/src/vcl/{name}.vcl", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    let tell = |(header, path): &(&str, &Path)| {
        let path = path.display();
        format!(
            "  set resp.http.{header} = regsub(std.fileread(\"{path}\"), \"^([^\\n]{{0,40}})[\\s\\S]*\", \"\\1\");\n"
        )
    };
    let user: String = files.iter().map(tell).collect();
    format!("{}\nimport std;\nsub vcl_deliver {{\n{user}}}\n{}", vcl("preamble"), vcl("postamble"))
}

/// One HTTPS listener and a route to a Service.
fn routing(port: u16, tls: u16) -> serde_json::Value {
    json!({
        "version": 2,
        "listeners": [
            {"name": "http", "socket": format!("http-{port}")},
            {"name": "https", "socket": format!("https-{tls}"), "tls": {"certificates": ["shop/cert"]}},
        ],
        "vhosts": {"shop.example.com": {"routes": [{
            "path_match": {"type": "PathPrefix", "value": "/"},
            "service": "shop", "namespace": "default", "port": 80, "weight": 100,
            "listeners": [], "route_name": "default/shop", "priority": 1, "rule_index": 0,
        }]}},
    })
}

fn chaperone(dir: &Path, port: u16, more: &[(&str, &str)]) -> Program {
    let mut command = Program::command();
    command
        .arg("chaperone")
        .current_dir(dir)
        .env("VARNISH_ADMIN_PORT", free_port().to_string())
        .env("VARNISH_LISTEN", format!("http-{port}=:{port},http"))
        .env("WORK_DIR", "varnish")
        .env("HEALTH_ADDR", format!(":{}", free_port()))
        .envs(more.iter().copied());
    Program::spawn(command)
}

#[test]
fn a_pod_that_starts_without_api_server_serves_what_it_kept_and_vcl_cannot_read_its_keys() {
    let (origin, pair) = (Origin::new("shop"), Certificate::new("shop.example.com"));
    let (dir, port, tls) = (directory(), free_port(), free_port());
    let private = dir.path().join("varnish-private/last-certificates.json");
    write(&private, &json!({"shop/cert": [pair.chain, pair.key]}).to_string());
    let open = dir.path().join("open/file");
    write(&open, "anybody may read it");
    let address = origin.address();
    let mut ghost = routing(port, tls);
    let route = &mut ghost["vhosts"]["shop.example.com"]["routes"][0];
    for key in ["service", "namespace", "port", "weight"] {
        route.as_object_mut().unwrap().remove(key);
    }
    let backend = json!({"address": address.ip().to_string(), "port": address.port()});
    route["backend_groups"] = json!([{"weight": 100, "backends": [backend]}]);
    let vcl = telling_vcl(&[("X-Private", &private), ("X-Open", &open)]);
    let kept = json!({
        "vcl": vcl, "routing": routing(port, tls).to_string(), "ghost": ghost.to_string(), "tls": {},
    });
    write(&dir.path().join("varnish/last-configuration.json"), &kept.to_string());
    // No server answers there.
    let server = format!("http://127.0.0.1:{}", free_port());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "gone",
        "clusters": [{"name": "gone", "cluster": {"server": server}}],
        "users": [{"name": "gone", "user": {}}],
        "contexts": [{"name": "gone", "context": {"cluster": "gone", "user": "gone"}}],
    });
    write(&dir.path().join("kubeconfig"), &kubeconfig.to_string());
    let program = chaperone(dir.path(), port, &[("GATEWAY_NAME", "shop"), ("KUBECONFIG", "kubeconfig")]);
    program.wait_for_line(&["chaperone: reloaded"]);
    let answer = get(port, "shop.example.com", "/");
    assert_eq!(answer.origin(), "shop");
    assert_eq!(answer.header("X-Open"), Some("anybody may read it"));
    assert_eq!(answer.header("X-Private").unwrap_or_default(), "");
    // HTTPS is served, too.
    program.wait_for_line(&["chaperone: listening on", &format!("(https-{tls})")]);
    assert!(Handshake { port: tls, name: Some("shop.example.com") }.shows(&pair));
}

#[test]
fn vcl_cannot_read_the_certificates_that_are_mounted() {
    let pair = Certificate::new("shop.example.com");
    let (dir, port, tls) = (directory(), free_port(), free_port());
    let key = dir.path().join("mounted/shop.cert.key");
    write(&key, &pair.key);
    write(&dir.path().join("mounted/shop.cert.crt"), &pair.chain);
    write(&dir.path().join("endpoints/none.yaml"), "");
    write(&dir.path().join("config/routing.json"), &routing(port, tls).to_string());
    let config = dir.path().join("config/routing.json");
    write(&dir.path().join("config/main.vcl"), &telling_vcl(&[("X-Private", &key), ("X-Open", &config)]));
    let more = [
        ("VCL_PATH", "config/main.vcl"),
        ("ROUTING_CONFIG_PATH", "config/routing.json"),
        ("ENDPOINTS_PATH", "endpoints"),
        ("CERTIFICATES_PATH", "mounted"),
    ];
    let program = chaperone(dir.path(), port, &more);
    program.wait_for_line(&["chaperone: reloaded"]);
    let answer = get(port, "shop.example.com", "/");
    assert!(answer.header("X-Open").is_some_and(|text| text.starts_with('{')), "{answer:?}");
    assert_eq!(answer.header("X-Private").unwrap_or_default(), "");
    program.wait_for_line(&["chaperone: listening on", &format!("(https-{tls})")]);
    assert!(Handshake { port: tls, name: Some("shop.example.com") }.shows(&pair));
}

#[test]
fn keys_that_cannot_be_hidden_are_told() {
    let (dir, port) = (directory(), free_port());
    write(&dir.path().join("endpoints/none.yaml"), "");
    let more = [("ENDPOINTS_PATH", "endpoints"), ("CERTIFICATES_PATH", "varnish/certificates")];
    let program = chaperone(dir.path(), port, &more);
    program.wait_for_line(&["user VCL can read the private keys", "varnish/certificates", "elsewhere"]);
}
