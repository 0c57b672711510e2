//! The steps of the writers.

use crate::{
    action::Action,
    scenario::{End, Pace, System, Transaction},
    state::State,
};

impl System {
    pub(crate) fn write(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Begin(w) => {
                state.writers[w].open = Some((state.database.mvcc.begin(), 0));
                let Transaction { keys, end, pace } = self.writers[w][state.writers[w].done];
                match pace {
                    Pace::Numbered => {}
                    Pace::Locking => self.write(state, Action::Emit(w))?,
                    Pace::AtOnce => {
                        for _ in keys {
                            self.write(state, Action::Emit(w))?;
                        }
                        let ends = match end {
                            End::RollsBack => Action::RollBack(w),
                            _ => Action::Commit(w),
                        };
                        self.write(state, ends)?;
                    }
                }
            }
            Action::Emit(w) => {
                let (xid, emitted) = state.writers[w].open?;
                let (event, _) = self.event(w, state.writers[w].done, emitted);
                state.database.insert(xid, event);
                state.writers[w].open = Some((xid, emitted + 1));
            }
            Action::Commit(w) | Action::RollBack(w) => {
                let (xid, _) = state.writers[w].open.take()?;
                state.writers[w].done += 1;
                if matches!(action, Action::RollBack(_)) {
                    state.database.mvcc.abort(xid);
                    return Some(());
                }
                for event in state.database.commit(xid) {
                    state.keys[usize::from(self.key_of(event))]
                        .order
                        .push(event);
                }
            }
            _ => return None,
        }
        Some(())
    }
}
