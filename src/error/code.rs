//! The SQLSTATE of each error.

use pgrx::PgSqlErrorCode as Code;

use super::Error;

impl Error {
    pub(super) fn code(&self) -> Code {
        match self {
            Error::NullArgument(_) | Error::NullElement(_) => Code::ERRCODE_NULL_VALUE_NOT_ALLOWED,
            Error::LockTimeout => Code::ERRCODE_LOCK_NOT_AVAILABLE,
            Error::LongKey(_) | Error::KeyBeyondColumn => {
                Code::ERRCODE_STRING_DATA_RIGHT_TRUNCATION
            }
            Error::Unattachable(..) | Error::AttachedKind(..) => Code::ERRCODE_DATATYPE_MISMATCH,
            Error::NoSuchColumn { .. } => Code::ERRCODE_UNDEFINED_COLUMN,
            Error::DetachedView(_)
            | Error::DetachedMain
            | Error::GeneratedColumns
            | Error::GeneratedTtl
            | Error::NoPrefixes => Code::ERRCODE_FEATURE_NOT_SUPPORTED,
            Error::EmptyKey
            | Error::TtlNotPositive
            | Error::NegativeGrace
            | Error::NegativeCount(_)
            | Error::UnequalArrays
            | Error::ArrayDimensions(_)
            | Error::NegativeWait
            | Error::JitterOutOfRange
            | Error::EarlyRefreshOutOfRange
            | Error::UnknownStorage(_)
            | Error::UnknownUnit(_)
            | Error::LimitNotPositive
            | Error::WindowNotPositive
            | Error::NodesNotPositive
            | Error::ShardCountNotPositive
            | Error::UnknownValueType => Code::ERRCODE_INVALID_PARAMETER_VALUE,
            Error::OverShards(_)
            | Error::Undistributable(..)
            | Error::NoCitus
            | Error::OtherShards(_) => Code::ERRCODE_FEATURE_NOT_SUPPORTED,
            Error::NotSpreadBefore => Code::ERRCODE_INSUFFICIENT_PRIVILEGE,
            Error::NoNode(_) => Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            Error::NotSent => Code::ERRCODE_INVALID_PARAMETER_VALUE,
            Error::NotAnExpression => Code::ERRCODE_SYNTAX_ERROR,
            Error::KeyNotText(_) => Code::ERRCODE_DATATYPE_MISMATCH,
            Error::VolatileKey => Code::ERRCODE_INVALID_OBJECT_DEFINITION,
            Error::SourceNotATable(_) => Code::ERRCODE_WRONG_OBJECT_TYPE,
            Error::DependencyOfMain | Error::UnsteadyKey(_) => Code::ERRCODE_FEATURE_NOT_SUPPORTED,
            Error::DependencyUnderPolicies
            | Error::ChildOfAnother(_)
            | Error::TriggerOfAnother { .. }
            | Error::ConditionOfAnother { .. }
            | Error::ClientOfAnother => Code::ERRCODE_INSUFFICIENT_PRIVILEGE,
            Error::NoDependency(_) => Code::ERRCODE_UNDEFINED_OBJECT,
            Error::NotADependency => Code::ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
            Error::NotACache(_)
            | Error::Distributed(_)
            | Error::TemporaryView(_)
            | Error::NameTaken(_)
            | Error::BrokenCache(..) => Code::ERRCODE_WRONG_OBJECT_TYPE,
            Error::NoSuchRelation(_) | Error::NoSuchView => Code::ERRCODE_UNDEFINED_TABLE,
            Error::CacheExists(_) | Error::AttachedAlready(_) => Code::ERRCODE_DUPLICATE_TABLE,
            Error::HexLiteralAsText => Code::ERRCODE_WARNING,
            Error::NotAnInteger | Error::NotJson | Error::KeyNotOfType(_) => {
                Code::ERRCODE_INVALID_TEXT_REPRESENTATION
            }
            Error::UnknownCharacter => Code::ERRCODE_UNTRANSLATABLE_CHARACTER,
            Error::NotText => Code::ERRCODE_CHARACTER_NOT_IN_REPERTOIRE,
            Error::CounterOverflow | Error::KeyOutOfRange(_) => {
                Code::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE
            }
            Error::LoaderRecursion => Code::ERRCODE_INVALID_RECURSION,
            Error::LoaderNoQuery(_) | Error::LoaderColumns(_) => Code::ERRCODE_SYNTAX_ERROR,
            Error::LoaderRows(_) => Code::ERRCODE_CARDINALITY_VIOLATION,
            Error::NoTier
            | Error::NoLeases
            | Error::OlderExtension
            | Error::DroppedExtension
            | Error::DefinitionChanged
            | Error::UnloggedSource(_) => Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            Error::NoSharedMemory(_) | Error::OutOfMemory(_) => Code::ERRCODE_OUT_OF_MEMORY,
            Error::NoSlot | Error::TooManyPrepared => Code::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            Error::EntryTooLarge(_) | Error::LongChannel(_) | Error::TooMuchPublished(_) => {
                Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED
            }
            Error::PreparedWrite
            | Error::PreparedMessages
            | Error::TooLateForTriggers(_)
            | Error::NoCron
            | Error::CronElsewhere { .. } => Code::ERRCODE_FEATURE_NOT_SUPPORTED,
            Error::WrongColumns => Code::ERRCODE_DATATYPE_MISMATCH,
            Error::NotATrigger(_) => Code::ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
        }
    }
}
