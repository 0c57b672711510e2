//! Schemas into which others may have put code that would run with our rights: they are refused.

use posthaste_engine::StoreError;
use tokio_postgres::Client as Driver;

use super::{check, error::classify};

const OPERATION: &str = "init";
const FOREIGN: &str = include_str!("sql/init_foreign.sql");

/// [`refuse_foreign`] in the script.
pub(super) fn refuse_foreign_in_script() -> String {
    let triggers = check::FOREIGN_TRIGGERS;
    format!(
        "do $$
declare
    foreign_ text := coalesce((
{FOREIGN}), (
{triggers}));
begin
    if foreign_ is not null then
        raise exception '%: whoever that is could have put code there that would run with your '
            'rights', foreign_
            using hint = 'Drop or take back what that role has there, or run this as that role.';
    end if;
end
$$;
"
    )
}

/// Refuses a schema into which others may have put what would run with our rights.
pub(super) async fn refuse_foreign(client: &Driver) -> Result<(), StoreError> {
    let row = client.query_typed_one(FOREIGN, &[]).await;
    let found: Option<String> = row.map_err(|error| classify(OPERATION, error))?.get(0);
    if let Some(found) = found {
        return Err(StoreError::Denied {
            operation: OPERATION,
            reason: format!(
                "{found}, who could have put code there that would run with your rights. Drop or \
                 take back what that role has there, or run `init` as that role"
            ),
        });
    }
    let triggers = client.query_typed_one(check::FOREIGN_TRIGGERS, &[]).await;
    check::refuse_foreign_triggers(triggers, OPERATION)
}
