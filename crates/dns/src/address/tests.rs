use super::*;

fn judge(text: &str, public_only: bool) -> Option<Refused> {
    refused(text.parse().unwrap(), public_only, false)
}

#[test]
fn addresses_of_the_pod_and_its_neighbourhood_are_refused() {
    for (text, why) in [
        ("127.0.0.1", Refused::Loopback),
        ("127.255.255.254", Refused::Loopback),
        ("::1", Refused::Loopback),
        ("::ffff:127.0.0.1", Refused::Loopback),
        ("::127.0.0.1", Refused::Loopback),
        ("64:ff9b::7f00:1", Refused::Loopback),
        ("2002:7f00:1::1", Refused::Loopback),
        ("169.254.169.254", Refused::LinkLocal),
        ("::ffff:169.254.169.254", Refused::LinkLocal),
        ("64:ff9b::a9fe:a9fe", Refused::LinkLocal),
        ("fe80::1", Refused::LinkLocal),
        ("febf::1", Refused::LinkLocal),
        ("fd00:ec2::254", Refused::Metadata),
        ("168.63.129.16", Refused::Metadata),
        ("100.100.100.200", Refused::Metadata),
        ("0.0.0.0", Refused::NoHost),
        ("0.1.2.3", Refused::NoHost),
        ("224.0.0.1", Refused::NoHost),
        ("255.255.255.255", Refused::NoHost),
        ("240.0.0.1", Refused::NoHost),
        ("::", Refused::NoHost),
        ("ff02::1", Refused::NoHost),
    ] {
        assert_eq!(judge(text, false), Some(why), "{text}");
        assert_eq!(judge(text, true), Some(why), "{text}");
    }
}

#[test]
fn private_addresses_are_good_unless_only_public_ones_are() {
    for text in [
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "198.18.0.1",
        "192.0.2.1",
        "fd00::1",
        "fec0::1",
        "2001:db8::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
    ] {
        assert_eq!(judge(text, false), None, "{text}");
        assert_eq!(judge(text, true), Some(Refused::Private), "{text}");
    }
    for text in ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "64:ff9b::808:808"] {
        assert_eq!(judge(text, true), None, "{text}");
    }
}

#[test]
fn loopback_is_good_for_trials_on_one_machine() {
    for text in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(refused(text.parse().unwrap(), false, true), None, "{text}");
    }
    assert_eq!(refused("169.254.1.1".parse().unwrap(), false, true), Some(Refused::LinkLocal));
}
