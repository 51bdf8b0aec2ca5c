use super::*;

fn counter(group: &str, instance: &str, name: &str, value: u64) -> Counter {
    Counter {
        group: group.to_owned(),
        instance: instance.to_owned(),
        name: name.to_owned(),
        description: String::new(),
        grows: true,
        value,
    }
}

#[test]
fn the_last_attempts_say_whether_an_endpoint_can_be_reached() {
    let mut backends = Backends::default();
    let address: SocketAddr = "10.0.0.1:80".parse().unwrap();
    let mut look = |requests, failures| {
        let name = "boot.10.0.0.1:80";
        let refused = counter("VBE", name, "fail_econnrefused", failures);
        backends.take(&[counter("VBE", name, "req", requests), counter("VBE", name, "fail", 0), refused]);
        backends.health(address)
    };
    assert_eq!(look(0, 0), Health::Untried);
    assert_eq!(look(3, 0), Health::Up);
    assert_eq!(look(3, 1), Health::Failing);
    assert_eq!(look(3, 1), Health::Failing, "nobody has tried since");
    assert_eq!(look(4, 1), Health::Up);
    assert_eq!(look(1, 0), Health::Up, "a new child");
    backends.take(&[]);
    assert_eq!(backends.health(address), Health::Untried);
}

#[test]
fn names_of_backends_lead_to_addresses() {
    assert_eq!(address("main_3.[::1]:443+tls:a/b"), Some("[::1]:443".parse().unwrap()));
    assert_eq!(address("boot.10.0.0.1:80"), Some("10.0.0.1:80".parse().unwrap()));
    assert_eq!(address("boot.default"), None);
}

#[test]
fn the_bytes_of_the_cache_are_those_of_all_its_objects() {
    let mut backends = Backends::default();
    let counters = [
        counter("SMA", "s0", "g_bytes", 5),
        counter("SMA", "s0", "g_space", 95),
        counter("SMA", "Transient", "g_bytes", 7),
        counter("SMA", "Transient", "g_space", 0),
        counter("MAIN", "", "n_object", 2),
    ];
    backends.take(&counters);
    let expected =
        Cache { used: 12, objects: 2, stored: 5, limit: 100, transient: 7, transient_limit: 0, evicted: 0 };
    assert_eq!(backends.cache, Some(expected));
    let bounded = [counter("SMA", "Transient", "g_space", 13), counters[2].clone(), counters[4].clone()];
    backends.take(&bounded);
    let cache = backends.cache.unwrap();
    assert_eq!((cache.stored, cache.limit, cache.transient, cache.transient_limit), (0, 0, 7, 20));
}
