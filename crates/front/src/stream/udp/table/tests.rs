use proptest::prelude::*;

use super::*;

const SILENCE: Silence = Silence { first: 30_000, established: 120_000 };

fn client(number: u16) -> SocketAddr {
    ([192, 0, 2, 1], number).into()
}

#[test]
fn a_flood_replaces_silent_new_sessions_and_no_established_one() {
    let mut table = Table::default();
    table.insert(client(1), 1, 0);
    table.endpoint_sent(&client(1), 1).unwrap();
    table.client_sent(&client(1), 2).unwrap();
    table.insert(client(2), 2, 3);
    table.insert(client(3), 3, 4);
    // Both are too young.
    assert_eq!(table.replace(500), None);
    assert_eq!(table.replace(1_003), Some((client(2), 2)));
    assert_eq!(table.replace(1_003), None);
    assert_eq!(table.replace(100_000), Some((client(3), 3)));
    assert_eq!(table.replace(100_000_000), None, "an established session stays");
    assert_eq!(table.len(), 1);
}

#[test]
fn an_answered_session_is_replaced_after_the_new_ones_and_only_when_it_is_silent() {
    let mut table = Table::default();
    table.insert(client(1), 1, 0);
    assert!(table.endpoint_sent(&client(1), 10).unwrap().0, "the first answer");
    table.insert(client(2), 2, 9_000);
    assert_eq!(table.replace(10_000), Some((client(2), 2)));
    assert!(!table.endpoint_sent(&client(1), 10_000).unwrap().0);
    assert_eq!(table.replace(14_999), None);
    assert_eq!(table.replace(15_000), Some((client(1), 1)));
}

#[test]
fn sessions_expire_by_silence_and_later_once_established() {
    let mut table = Table::default();
    for number in 1..=3 {
        table.insert(client(number), number, 0);
    }
    table.endpoint_sent(&client(2), 10).unwrap();
    table.endpoint_sent(&client(3), 10).unwrap();
    table.client_sent(&client(3), 20).unwrap();
    assert_eq!(table.expire(SILENCE, 29_999), None);
    assert_eq!(table.expire(SILENCE, 30_000), Some((client(1), 1)));
    assert_eq!(table.expire(SILENCE, 30_010), Some((client(2), 2)));
    assert_eq!(table.expire(SILENCE, 120_019), None);
    assert_eq!(table.expire(SILENCE, 120_020), Some((client(3), 3)));
    assert_eq!(table.len(), 0);
}

#[test]
fn the_memory_of_a_flood_is_given_back() {
    let mut table = Table::default();
    for number in 0..10_000 {
        table.insert(client(number), number, 0);
    }
    while table.expire(SILENCE, 1_000_000).is_some() {}
    assert_eq!((table.slots.capacity(), table.by_client.capacity(), table.free.capacity()), (0, 0, 0));
}

#[derive(Debug, Clone)]
enum Step {
    FromClient(u16),
    FromEndpoint(u16),
    Insert(u16),
    Remove(u16),
    Replace,
    Expire,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        4 => (0..12u16).prop_map(Step::FromClient),
        4 => (0..12u16).prop_map(Step::FromEndpoint),
        4 => (0..12u16).prop_map(Step::Insert),
        1 => (0..12u16).prop_map(Step::Remove),
        2 => Just(Step::Replace),
        2 => Just(Step::Expire),
        4 => (0..20_000u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(one, 0..200)
}

/// Slow and obvious: sessions in the order of their last datagram.
#[derive(Default)]
struct Oracle(Vec<(u16, Class, u64)>);

impl Oracle {
    fn touch(&mut self, number: u16, now: u64, class: impl Fn(Class) -> Class) -> Option<Class> {
        let at = self.0.iter().position(|(one, ..)| *one == number)?;
        let (_, old, _) = self.0.remove(at);
        self.0.push((number, class(old), now));
        Some(old)
    }

    fn take(&mut self, now: u64, classes: &[(Class, u64)]) -> Option<u16> {
        let silent = |(class, least): &(Class, u64)| {
            let first = self.0.iter().find(|(_, one, _)| one == class)?;
            (now - first.2 >= *least).then_some(first.0)
        };
        let number = classes.iter().find_map(silent)?;
        self.0.retain(|(one, ..)| *one != number);
        Some(number)
    }
}

proptest! {
    #[test]
    fn it_does_what_a_slow_table_does(steps in steps()) {
        let (mut table, mut oracle, mut now) = (Table::default(), Oracle::default(), 0);
        for step in steps {
            match step {
                Step::FromClient(number) => {
                    let next = |old| if old == Class::New { old } else { Class::Established };
                    let expected = oracle.touch(number, now, next).map(|_| number);
                    prop_assert_eq!(table.client_sent(&client(number), now).map(|one| *one), expected);
                }
                Step::FromEndpoint(number) => {
                    let next = |old| if old == Class::New { Class::Answered } else { old };
                    let expected = oracle.touch(number, now, next).map(|old| (old == Class::New, number));
                    let found = table.endpoint_sent(&client(number), now).map(|(first, one)| (first, *one));
                    prop_assert_eq!(found, expected);
                }
                Step::Insert(number) => {
                    if table.client_sent(&client(number), now).is_none() {
                        table.insert(client(number), number, now);
                        oracle.0.push((number, Class::New, now));
                    } else {
                        oracle.touch(number, now, |old| if old == Class::New { old } else { Class::Established });
                    }
                }
                Step::Remove(number) => {
                    let known = oracle.0.iter().any(|(one, ..)| *one == number);
                    oracle.0.retain(|(one, ..)| *one != number);
                    prop_assert_eq!(table.remove(&client(number)).is_some(), known);
                }
                Step::Replace => {
                    let order = [(Class::New, NEW_KEEPS), (Class::Answered, ANSWERED_KEEPS)];
                    let expected = oracle.take(now, &order);
                    prop_assert_eq!(table.replace(now).map(|(_, one)| one), expected);
                }
                Step::Expire => {
                    let first = SILENCE.first;
                    let order =
                        [(Class::New, first), (Class::Answered, first), (Class::Established, SILENCE.established)];
                    let expected = oracle.take(now, &order);
                    prop_assert_eq!(table.expire(SILENCE, now).map(|(_, one)| one), expected);
                }
                Step::Wait(time) => now += time,
            }
            prop_assert_eq!(table.len(), oracle.0.len());
            let mut there: Vec<u16> = table.sessions().map(|(_, one)| *one).collect();
            let mut expected: Vec<u16> = oracle.0.iter().map(|(one, ..)| *one).collect();
            there.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(there, expected);
        }
    }
}
