//! Properties of TLS.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, boolean, class, list, password, string};
use super::{NO_CLASSES, NO_TLS};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    string("ssl.protocol", "TLSv1.3").per_broker().instead(NO_TLS)
        .doc("The newest TLS version to use."),
    list("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").any_list().per_broker().instead(NO_TLS)
        .doc("The TLS versions that are accepted."),
    string("ssl.provider", "").null().per_broker().instead(NO_TLS)
        .doc("The provider of TLS."),
    list("ssl.cipher.suites", "").any_list().per_broker().instead(NO_TLS)
        .doc("The cipher suites that are accepted; empty for the usual ones."),
    string("ssl.keystore.type", "JKS").per_broker().instead(NO_TLS)
        .doc("The format of the key store: JKS, PKCS12 or PEM."),
    string("ssl.keystore.location", "").null().per_broker().instead(NO_TLS)
        .doc("The file with this node's key and certificate."),
    password("ssl.keystore.password").per_broker().instead(NO_TLS)
        .doc("The password of the key store."),
    password("ssl.key.password").per_broker().instead(NO_TLS)
        .doc("The password of the key itself."),
    password("ssl.keystore.key").per_broker().instead(NO_TLS)
        .doc("This node's key as PEM text."),
    password("ssl.keystore.certificate.chain").per_broker().instead(NO_TLS)
        .doc("This node's certificates as PEM text."),
    string("ssl.truststore.type", "JKS").per_broker().instead(NO_TLS)
        .doc("The format of the trust store: JKS, PKCS12 or PEM."),
    string("ssl.truststore.location", "").null().per_broker().instead(NO_TLS)
        .doc("The file with the certificates that are trusted."),
    password("ssl.truststore.password").per_broker().instead(NO_TLS)
        .doc("The password of the trust store."),
    password("ssl.truststore.certificates").per_broker().instead(NO_TLS)
        .doc("The certificates that are trusted as PEM text."),
    string("ssl.keymanager.algorithm", "SunX509").per_broker().instead(NO_TLS)
        .doc("How the key is chosen."),
    string("ssl.trustmanager.algorithm", "PKIX").per_broker().instead(NO_TLS)
        .doc("How trust is decided."),
    string("ssl.endpoint.identification.algorithm", "https").low().per_broker().instead(NO_TLS)
        .doc("How a server's name is checked against its certificate; empty for no check."),
    string("ssl.secure.random.implementation", "").null().low().per_broker().instead(NO_TLS)
        .doc("The source of random numbers for TLS."),
    class("ssl.engine.factory.class", "").null().low().per_broker().instead(NO_CLASSES)
        .doc("The class that sets up TLS."),
    string("ssl.client.auth", "none").one_of(&["required", "requested", "none"]).per_broker()
        .instead(NO_TLS)
        .doc("Whether clients must show a certificate (`required`), may show one (`requested`), or need none (`none`)."),
    string("ssl.principal.mapping.rules", "DEFAULT").low().instead(NO_TLS)
        .doc("Rules that make a user name of a certificate's name."),
    boolean("ssl.allow.dn.changes", "false").low().instead(NO_TLS)
        .doc("Whether a new key store may have another distinguished name."),
    boolean("ssl.allow.san.changes", "false").low().instead(NO_TLS)
        .doc("Whether a new key store may have other alternative names."),
];
