//! What each bad pair gives.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use certificate::{Cover, Error, Pair, Pem, check};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256, SignatureAlgorithm, date_time_ymd,
};

struct Made {
    certificate: String,
    key: String,
}

impl Made {
    fn pem(&self) -> Pem {
        pem(&self.certificate, &self.key)
    }
}

fn pem(chain: &str, key: &str) -> Pem {
    Pem { chain: chain.as_bytes().to_vec(), key: key.as_bytes().to_vec() }
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

fn self_signed(params: &CertificateParams, algorithm: &'static SignatureAlgorithm) -> Made {
    let key = KeyPair::generate_for(algorithm).unwrap();
    Made { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}

fn good() -> Made {
    self_signed(&params(&["shop.example.com", "*.Example.org"]), &PKCS_ECDSA_P256_SHA256)
}

fn why(pem: &Pem) -> String {
    check(pem).unwrap_err().to_string()
}

#[test]
fn self_signed_pairs_of_every_kind_are_served() {
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519, &PKCS_RSA_SHA256] {
        let made = self_signed(&params(&["shop.example.com"]), algorithm);
        assert_eq!(check(&made.pem()), Ok(()), "{algorithm:?}");
    }
}

#[test]
fn names_and_dates_can_be_asked_for() {
    let mut params = params(&["shop.example.com", "*.Example.org"]);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
    let pair = Pair::new(&self_signed(&params, &PKCS_ECDSA_P256_SHA256).pem()).unwrap();
    assert_eq!(pair.names(), ["shop.example.com", "*.example.org"]);
    assert_eq!(pair.cover("a.example.org"), Some(Cover::Wildcard));
    assert_eq!(pair.cover("shop.example.com"), Some(Cover::Exact));
    assert_eq!((pair.not_before(), pair.not_after()), (1_577_836_800, 1_609_459_200));
    assert!(pair.in_order());
}

/// Callers with a clock may warn; that a pair is for another host is between the client and the certificate.
#[test]
fn an_expired_pair_and_one_for_another_host_are_pairs() {
    let mut expired = params(&["shop.example.com"]);
    expired.not_after = date_time_ymd(2001, 1, 1);
    expired.not_before = date_time_ymd(2000, 1, 1);
    let pair = Pair::new(&self_signed(&expired, &PKCS_ECDSA_P256_SHA256).pem()).unwrap();
    assert_eq!(pair.not_after(), 978_307_200);
    assert_eq!(pair.cover("other.example.com"), None);
}

#[test]
fn a_certificate_without_names_has_its_common_name() {
    let mut params = params(&[]);
    params.distinguished_name.push(DnType::CommonName, "Old.example.com");
    let pair = Pair::new(&self_signed(&params, &PKCS_ECDSA_P256_SHA256).pem()).unwrap();
    assert!(pair.names().contains(&"old.example.com".to_owned()), "{:?}", pair.names());
}

#[test]
fn an_empty_pair() {
    let made = good();
    assert_eq!(why(&pem("", &made.key)), "tls.crt is empty");
    assert_eq!(why(&pem(&made.certificate, "")), "tls.key is empty");
}

#[test]
fn garbage() {
    let made = good();
    assert_eq!(
        why(&pem("Hello world", &made.key)),
        "tls.crt holds no -----BEGIN CERTIFICATE-----; is it PEM?"
    );
    assert_eq!(
        why(&pem(&made.certificate, "Hello world")),
        "tls.key holds no -----BEGIN PRIVATE KEY-----; is it PEM?"
    );
    let base64 = "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";
    assert_eq!(why(&pem(base64, &made.key)), "tls.crt has lines that are not base64; is it damaged?");
    let hello = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    let two = format!("{}{hello}", made.certificate);
    assert_eq!(why(&pem(&two, &made.key)), "tls.crt holds something that is no certificate, at place 2 of 2");
    let key = "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n";
    assert!(why(&pem(&made.certificate, key)).starts_with("tls.key is no key that can be used"));
    let zeros = Pem { chain: vec![0; 1000], key: vec![255; 1000] };
    assert!(check(&zeros).is_err());
}

#[test]
fn a_file_that_was_cut_off() {
    let made = good();
    let half = &made.certificate[..made.certificate.len() / 2];
    assert_eq!(
        why(&pem(half, &made.key)),
        "tls.crt ends before its -----END CERTIFICATE-----; is it cut off?"
    );
    for length in 0..made.certificate.len() - 30 {
        assert!(check(&pem(&made.certificate[..length], &made.key)).is_err(), "{length}");
    }
}

#[test]
fn certificate_and_key_in_each_others_place() {
    let made = good();
    assert_eq!(
        why(&pem(&made.key, &made.certificate)),
        "tls.crt holds a private key, but no -----BEGIN CERTIFICATE-----; is it PEM?"
    );
    assert_eq!(
        why(&pem(&made.certificate, &made.certificate)),
        "tls.key holds a certificate, but no -----BEGIN PRIVATE KEY-----; is it PEM?"
    );
}

#[test]
fn an_encrypted_key() {
    let made = good();
    let key = "-----BEGIN ENCRYPTED PRIVATE KEY-----\naGVsbG8=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    assert_eq!(why(&pem(&made.certificate, key)), "tls.key is encrypted; store it without a passphrase");
    let old = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF\n\n\
               aGVsbG8=\n-----END EC PRIVATE KEY-----\n";
    assert_eq!(why(&pem(&made.certificate, old)), "tls.key is encrypted; store it without a passphrase");
}

#[test]
fn the_key_of_another_pair() {
    let (made, other) = (good(), good());
    let error = check(&pem(&made.certificate, &other.key)).unwrap_err();
    assert!(matches!(error, Error::Pair(_)));
    assert_eq!(error.to_string(), "tls.crt and tls.key do not fit: the key is of another certificate");
    let rsa = self_signed(&params(&["shop.example.com"]), &PKCS_RSA_SHA256);
    assert!(matches!(check(&pem(&made.certificate, &rsa.key)), Err(Error::Pair(_))));
}

#[test]
fn a_chain_in_the_wrong_order() {
    let mut ca = params(&[]);
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name.push(DnType::CommonName, "Test CA");
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = params(&["shop.example.com"]).signed_by(&key, &ca).unwrap().pem();
    let key = key.serialize_pem();
    let right = Pair::new(&pem(&format!("{leaf}{}", ca.pem()), &key)).unwrap();
    assert!(right.in_order());
    assert_eq!(
        why(&pem(&format!("{}{leaf}", ca.pem()), &key)),
        "tls.crt and tls.key do not fit: the key belongs to certificate 2 of 2; the server's own certificate must be the first"
    );
    // Served, since many clients find their way.
    let stranger = Pair::new(&pem(&format!("{leaf}{}{}", good().certificate, ca.pem()), &key)).unwrap();
    assert!(!stranger.in_order());
}

#[test]
fn sixteen_mebibytes() {
    let made = good();
    let large = vec![b'x'; 16 << 20];
    assert_eq!(check(&Pem { chain: large.clone(), ..made.pem() }), Err(Error::TooLarge("tls.crt")));
    assert_eq!(check(&Pem { key: large, ..made.pem() }), Err(Error::TooLarge("tls.key")));
}

#[test]
fn text_around_the_sections_is_no_harm() {
    let made = good();
    let chain = format!("subject=shop\r\n{}trailing words\n", made.certificate.replace('\n', "\r\n"));
    let key =
        format!("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n{}", made.key);
    assert_eq!(check(&pem(&chain, &key)), Ok(()));
}

#[test]
fn nobody_sees_a_key() {
    let made = good();
    let pair = Pair::new(&made.pem()).unwrap();
    let secret = made.key.lines().nth(1).unwrap();
    for shown in [format!("{pair:?}"), format!("{:?}", made.pem())] {
        assert!(!shown.contains(secret) && shown.contains(&pair.fingerprint()), "{shown}");
    }
}
