//! HTTPS when something is scarce, too large or slow; and openssl's own client.

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::support::{
    Authority, Certificate, Connection, Handshake, Origin, Program, SHOP_BY_TLS, Scene, class, config_map,
    free_port, gateway_of, get, parameters, route_to, s_client, secret, service, shop_on, until,
};

struct Site {
    port: u16,
    tls: u16,
    _shop: Origin,
    certificate: Certificate,
    program: Program,
    scene: Scene,
}

/// `class` may hold parameters.
fn site(class: String) -> Site {
    let (port, tls, shop) = (free_port(), free_port(), Origin::new("shop"));
    let certificate = Certificate::new("shop.example.com");
    let listeners = [
        format!("{{name: http, protocol: HTTP, port: {port}}}"),
        format!("{{name: https, protocol: HTTPS, port: {tls}, tls: {{certificateRefs: [{{name: cert}}]}}}}"),
    ];
    let all = [
        class,
        gateway_of("web", &listeners),
        service("shop", &[shop.address()]),
        route_to("shop", "/", "shop"),
    ];
    let scene = Scene::new(&all.concat());
    scene.write("cert.yaml", &certificate.secret("cert"));
    let program = scene.serve();
    program.wait_for_line(&["Gateway default/web: listening on", &format!(":{tls} (https-{tls})")]);
    Site { port, tls, _shop: shop, certificate, program, scene }
}

impl Site {
    fn handshake(&self) -> Handshake<'static> {
        Handshake { port: self.tls, name: Some("shop.example.com") }
    }
}

pub(crate) fn open_files(pid: u32) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64
}

/// Sets the soft limit, and gives the one before.
pub(crate) fn limit_files(pid: u32, most: u64) -> u64 {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let wanted = Rlimit { current: Some(most), maximum: numbers.get(1).copied() };
    prlimit(Pid::from_raw(i32::try_from(pid).unwrap()), Resource::Nofile, wanted).unwrap();
    numbers[0]
}

fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn without_file_descriptors_nothing_ends_or_spins() {
    let site = site(class());
    let pid = site.program.pid();
    let before = limit_files(pid, open_files(pid) + 4);
    let mut held: Vec<_> = (0..30).filter_map(|_| Connection::open(site.tls).ok()).collect();
    site.program.wait_for_line(&["cannot accept", "are there enough file descriptors?"]);
    let ticks = cpu_ticks(pid);
    std::thread::sleep(Duration::from_secs(2));
    let spent = cpu_ticks(pid) - ticks;
    assert!(spent < 100, "{spent} ticks in two seconds");
    // One more wherever a socket of ours became free for a moment.
    assert!(site.program.count_lines(&["cannot accept"]) <= 3, "told again and again");
    held.clear();
    limit_files(pid, before);
    until("it serves again", || site.handshake().open().is_ok());
    assert_eq!(site.handshake().get("shop.example.com", "/").status, 200);
}

/// As long as a file of a certificate may be on a bad day.
fn sixteen_mebibytes() -> String {
    let line = "A".repeat(64);
    format!(
        "-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n",
        format!("{line}\n").repeat((16 << 20) / 65)
    )
}

#[test]
fn a_certificate_of_16_mebibytes_is_refused_and_the_old_one_stays() {
    let site = site(class());
    site.scene.write("cert.yaml", &secret("cert", &sixteen_mebibytes(), &site.certificate.key));
    site.program.wait_for_line(&["Secret default/cert", "at most 1048576 are allowed"]);
    assert!(site.handshake().shows(&site.certificate));
    assert_eq!(get(site.port, "x", "/").status, 200);
}

#[test]
fn a_ca_of_16_mebibytes_gives_500_and_no_plain_text() {
    let (port, origin) = (free_port(), Origin::new("shop"));
    let all =
        [shop_on(port, &[origin.address()]), config_map("ca", &sixteen_mebibytes()), SHOP_BY_TLS.to_owned()];
    let scene = Scene::new(&all.concat());
    let _program = scene.serve();
    assert_eq!(get(port, "x", "/").status, 500);
    assert_eq!(origin.seen().len(), 0);
}

#[test]
fn clients_that_stall_do_not_keep_others_out() {
    let site = site(parameters("{tls: {maxHandshakes: 2, handshakeTimeout: 20s}}"));
    // Ten who say nothing, ten who say half a hello.
    let mut stalled = Vec::new();
    for round in 0..20 {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", site.tls)).unwrap();
        if round % 2 == 0 {
            stream.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
        }
        stalled.push(stream);
    }
    for _ in 0..5 {
        let began = Instant::now();
        assert_eq!(site.handshake().get("shop.example.com", "/").status, 200);
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    }
}

#[test]
fn openssl_speaks_both_versions_and_takes_sessions_up_again() {
    let site = site(class());
    let file = site.scene.path("session");
    let file = file.to_str().unwrap();
    for (option, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let common = ["-servername", "shop.example.com", "-alpn", "http/1.1", option];
        let first = s_client(site.tls, "shop.example.com", &[&common[..], &["-sess_out", file]].concat());
        assert!(first.contains("HTTP/1.1 200") && first.contains(version), "{first}");
        assert!(first.contains("ALPN protocol: http/1.1") && first.contains("New, "), "{first}");
        let again = s_client(site.tls, "shop.example.com", &[&common[..], &["-sess_in", file]].concat());
        assert!(again.contains("Reused, ") && again.contains("HTTP/1.1 200"), "{option}: {again}");
        // A session is for its name alone.
        let other = ["-servername", "other.example.com", "-alpn", "http/1.1", option, "-sess_in", file];
        let other = s_client(site.tls, "shop.example.com", &other);
        assert!(!other.contains("Reused, "), "{option}: {other}");
    }
    let old = s_client(
        site.tls,
        "shop.example.com",
        &["-servername", "shop.example.com", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
    );
    assert!(!old.contains("HTTP/1.1"), "{old}");
}

/// What each bad pair gives, as docs/reference/tls.md has it.
#[test]
fn every_bad_pair_is_told_and_harms_only_its_listener() {
    let (port, shop, authority) = (free_port(), Origin::new("shop"), Authority::new());
    let good = Certificate::new("shop.example.com");
    let other = Certificate::new("other.example.com");
    let expired = authority.expired(&["expired.example.com"]);
    let (chain, key) = (&good.chain, &good.key);
    let bad: [(&str, String, String, Option<&str>); 8] = [
        ("empty", String::new(), key.clone(), Some("tls.crt is empty")),
        ("nokey", chain.clone(), String::new(), Some("tls.key is empty")),
        ("nopem", "Hello\n".to_owned(), key.clone(), Some("holds no -----BEGIN CERTIFICATE-----")),
        ("cut", chain[..chain.len() / 2].to_owned(), key.clone(), Some("is it cut off?")),
        ("foreign", chain.clone(), other.key.clone(), Some("the key is of another certificate")),
        // No API server would have taken it.
        ("large", sixteen_mebibytes(), key.clone(), Some("Secret default/large does not exist")),
        ("expired", expired.chain, expired.key, None),
        ("wronghost", other.chain, other.key, None),
    ];
    let listener = |name: &str| {
        format!(
            "{{name: {name}, protocol: HTTPS, port: {port}, hostname: {name}.example.com, \
             tls: {{certificateRefs: [{{name: {name}}}]}}}}"
        )
    };
    let names = bad.iter().map(|(name, ..)| *name).chain(["shop"]);
    let mut all = class() + &gateway_of("web", &names.map(listener).collect::<Vec<_>>());
    for (name, chain, key, _) in &bad {
        all += &secret(name, chain, key);
    }
    all += &(good.secret("shop") + &service("shop", &[shop.address()]) + &route_to("shop", "/", "shop"));
    let scene = Scene::new(&all);
    let program = scene.serve();
    program.wait_for_line(&["Gateway default/web: listening on", &format!(":{port} (https-{port})")]);
    let of = |name: &'static str| Handshake { port, name: Some(name) };
    assert_eq!(of("shop.example.com").get("shop.example.com", "/").status, 200);
    for (name, _, _, why) in &bad {
        let host = format!("{name}.example.com");
        let opened = Handshake { port, name: Some(&host) }.open();
        match why {
            Some(why) => {
                program.wait_for_line(&[&format!("listener {name}"), "InvalidCertificateRef", why]);
                let Err(refused) = opened else { panic!("{name} is served") };
                assert!(refused.to_string().contains("UnrecognisedName"), "{name}: {refused}");
            }
            // Whether it is good enough, clients tell.
            None => assert!(opened.is_ok(), "{name}"),
        }
    }
}
