//! Typed views of the table: a struct whose fields are properties. Knows how fields are filled, not which there are.
//! Invariant: a field's type can hold every value that its property's definition accepts.

/// Declares a struct of properties of one scope. Each field names its property; `read` fills them all.
macro_rules! typed_config {
    (
        $(#[$meta:meta])*
        pub struct $name:ident of $scope:ident {
            $($(#[$field_meta:meta])* $field:ident: $type:ty = $key:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$field_meta])* #[doc = concat!("`", $key, "`")] pub $field: $type,)*
        }

        impl $name {
            /// Takes every field's value from `get`, which knows the properties of this scope.
            pub(super) fn read(get: impl Fn(&str) -> $crate::config::value::Value) -> Self {
                $name {
                    $($field: match $crate::config::value::FromValue::from_value(&get($key)) {
                        Some(value) => value,
                        None => unreachable!(concat!($key, " has another type in the table")),
                    },)*
                }
            }
        }
    };
}

pub(super) use typed_config;
