//! Enumerations that list their variants.

/// Declares an enumeration and `ALL` of its variants.
macro_rules! listed {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident { $($(#[$of_variant:meta])* $variant:ident,)+ }
    ) => {
        $(#[$attribute])*
        pub enum $name { $($(#[$of_variant])* $variant,)+ }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];
        }
    };
}
pub(crate) use listed;
