use super::*;

fn entries(addresses: &Addresses) -> usize {
    addresses.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
}

#[test]
fn a_client_gets_as_many_as_it_may_have_and_again_when_one_is_given_back() {
    let addresses = Addresses::default();
    let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
    let first = addresses.enter(a, 2).unwrap();
    let _second = addresses.enter(a, 2).unwrap();
    // However often it asks.
    assert!((0..5).all(|_| addresses.enter(a, 2).is_none()));
    assert!(addresses.enter("::ffff:192.0.2.1".parse().unwrap(), 2).is_none());
    let _other = addresses.enter(b, 2).unwrap();
    drop(first);
    assert!(addresses.enter(a, 2).is_some());
}

#[test]
fn addresses_of_one_ipv6_network_of_64_bits_are_one_client() {
    let addresses = Addresses::default();
    let _first = addresses.enter("2001:db8::1".parse().unwrap(), 1).unwrap();
    assert!(addresses.enter("2001:db8::ffff:1:2:3".parse().unwrap(), 1).is_none());
    assert!(addresses.enter("2001:db8:0:1::1".parse().unwrap(), 1).is_some());
}

#[test]
fn clients_without_a_connection_take_no_memory() {
    let addresses = Addresses::default();
    let held: Vec<_> = (0..100_000u32).map(|n| addresses.enter(IpAddr::V4(n.into()), 1).unwrap()).collect();
    assert_eq!(entries(&addresses), 100_000);
    drop(held);
    assert_eq!(entries(&addresses), 0);
    assert!(addresses.shards.iter().all(|shard| shard.lock().unwrap().capacity() <= 64));
}
