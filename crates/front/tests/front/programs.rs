//! Programs of others: openssl and curl as clients, varnishd behind.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use front::Failure;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::support::{Authority, Front, PATIENCE, Upstream, config, host};

async fn output(command: &mut Command) -> Output {
    timeout(PATIENCE, command.stdin(Stdio::null()).kill_on_drop(true).output()).await.unwrap().unwrap()
}

async fn openssl(front: &Front, authority: &Authority, options: &[&str]) -> (bool, String) {
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, &authority.pem).unwrap();
    let mut command = Command::new("openssl");
    command
        .args(["s_client", "-verify_return_error", "-connect", &front.address.to_string(), "-CAfile"])
        .arg(ca);
    let output = output(command.args(options)).await;
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn openssl_verifies_each_version_and_key() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let hosts = vec![
        host("rsa.test", &[&authority.rsa(&["rsa.test"])]),
        host("ec.test", &[&authority.ecdsa(&["ec.test"])]),
    ];
    let front = Front::start(config(hosts), upstream.path()).await;
    for name in ["rsa.test", "ec.test"] {
        for (option, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
            let options = ["-servername", name, "-verify_hostname", name, "-alpn", "h2,http/1.1", option];
            let (ok, text) = openssl(&front, &authority, &options).await;
            assert!(ok && text.contains("Verify return code: 0 (ok)"), "{name} {option}: {text}");
            assert!(text.contains("ALPN protocol: h2") && text.contains(version), "{name} {option}: {text}");
        }
    }
    let (ok, text) = openssl(&front, &authority, &["-servername", "other.test"]).await;
    assert!(!ok && text.contains("unrecognized name"), "{text}");
    let (ok, text) = openssl(&front, &authority, &["-servername", "ec.test", "-alpn", "smtp"]).await;
    assert!(!ok && text.contains("no application protocol"), "{text}");
    front.until("counted", |counters| counters.failures(Failure::Incompatible) == 1).await;
}

const VCL: &str = r#"
vcl 4.1;
import proxy;
import std;
backend none none;
sub vcl_recv { return (synth(200)); }
sub vcl_synth {
    set resp.http.client = client.ip;
    set resp.http.port = std.port(server.ip);
    set resp.http.name = proxy.authority();
    set resp.http.alpn = proxy.alpn();
    set resp.http.tls = proxy.ssl_version();
    set resp.http.proto = req.proto;
    set resp.body = "served";
    return (deliver);
}
"#;

async fn varnishd(directory: &TempDir) -> Child {
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("main.vcl"), VCL).unwrap();
    let child = Command::new("varnishd")
        .args(["-F", "-j", "none", "-p", "feature=+http2", "-s", "malloc,16m", "-n"])
        .arg(path("varnish"))
        .arg("-f")
        .arg(path("main.vcl"))
        .arg("-a")
        .arg(format!("https={},PROXY", path("https.sock").display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let there = timeout(PATIENCE, async {
        while !reachable(&path("https.sock")).await {
            sleep(Duration::from_millis(20)).await;
        }
    });
    there.await.unwrap();
    child
}

async fn reachable(path: &Path) -> bool {
    tokio::net::UnixStream::connect(path).await.is_ok()
}

#[tokio::test]
async fn varnishd_serves_curl_and_knows_who_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let _varnishd = varnishd(&directory).await;
    let authority = Authority::new();
    let pair = authority.ecdsa(&["shop.test"]);
    let front =
        Front::start(config(vec![host("shop.test", &[&pair])]), directory.path().join("https.sock")).await;
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, &authority.pem).unwrap();
    let port = front.address.port();
    for (option, alpn, tls) in [
        ("--http2", "h2", "--tlsv1.3"),
        ("--http1.1", "http/1.1", "--tlsv1.3"),
        ("--http2", "h2", "--tls-max=1.2"),
    ] {
        let mut command = Command::new("curl");
        command.args(["-sSi", option]).arg("--cacert").arg(&ca);
        match tls.split_once('=') {
            Some((name, value)) => command.args([name, value]),
            None => command.arg(tls),
        };
        command
            .arg("--resolve")
            .arg(format!("shop.test:{port}:127.0.0.1"))
            .arg(format!("https://shop.test:{port}/"));
        let output = output(&mut command).await;
        let text = String::from_utf8_lossy(&output.stdout).to_lowercase();
        assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
        let version = if tls.contains("1.2") { "tlsv1.2" } else { "tlsv1.3" };
        for line in [
            "client: 127.0.0.1".to_owned(),
            "port: 443".to_owned(),
            "name: shop.test".to_owned(),
            format!("alpn: {alpn}"),
            format!("tls: {version}"),
            "served".to_owned(),
        ] {
            assert!(text.contains(&line), "{option} {tls}: no {line} in {text}");
        }
    }
}
