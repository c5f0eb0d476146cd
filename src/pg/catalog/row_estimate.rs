//! Estimates for the planner how many rows a set-returning function with one constant text argument returns.

use pgrx::{Internal, pg_sys};

use crate::pg::memory::pg_list::pointers;
use crate::pg::value::datum::{Text, Value};

/// Answers the planner's request with the number that `rows` returns for the argument. Returns a null pointer for other
/// requests, for an argument that is not a constant, and if `rows` returns None; the planner then uses the ROWS of the
/// function's declaration.
pub fn answer(request: Option<Internal>, rows: impl FnOnce(Text) -> Option<f64>) -> Internal {
    let Some(datum) = request.and_then(|request| request.unwrap()) else {
        return Internal::from(Some(pg_sys::Datum::null()));
    };
    // SAFETY: the function takes `internal`, which no SQL can make; the planner calls it with a node that lives
    // through the call.
    let answered = unsafe {
        let node: *mut pg_sys::Node = datum.cast_mut_ptr();
        match (*node).type_ {
            pg_sys::NodeTag::T_SupportRequestRows => {
                let request: *mut pg_sys::SupportRequestRows = node.cast();
                let known = argument(&*request).and_then(rows);
                known.map(|rows| (*request).rows = rows).is_some()
            }
            _ => false,
        }
    };
    // The planner expects a null pointer, not an SQL NULL.
    Internal::from(Some(match answered {
        true => datum,
        false => pg_sys::Datum::null(),
    }))
}

/// Returns the constant text argument of the call; None if the argument is not a constant text.
///
/// # Safety
/// `request` is one of the planner's.
unsafe fn argument(request: &pg_sys::SupportRequestRows) -> Option<Text> {
    // SAFETY: the tag of a node says its type; an argument of a function is an expression.
    unsafe {
        let call: *mut pg_sys::FuncExpr = request.node.cast();
        if call.is_null() || (*call).xpr.type_ != pg_sys::NodeTag::T_FuncExpr {
            return None;
        }
        let constant = *pointers::<pg_sys::Const>((*call).args).first()?;
        let is_text = (*constant).xpr.type_ == pg_sys::NodeTag::T_Const
            && !(*constant).constisnull
            && (*constant).consttype == pg_sys::TEXTOID;
        is_text.then(|| {
            let text = pg_sys::pg_detoast_datum((*constant).constvalue.cast_mut_ptr());
            Text::from_raw(pg_sys::Datum::from(text))
        })
    }
}
