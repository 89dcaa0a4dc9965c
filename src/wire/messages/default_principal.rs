//! The principal of a client as an Envelope carries it (KIP-590): a version as int16, then this.

messages! {
    message DefaultPrincipalData (data 0, versions "0", flexible "0+") {
        /// "User" for clients.
        principal_type: string "0+",
        name: string "0+",
        token_authenticated: bool "0+",
    }
}
