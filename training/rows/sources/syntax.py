"""The closed list of SQL by which a query keeps one row, or one unit's rows, apart from all others. Names are those of
sqlglot's classes. Whoever adds one shows in docs/privacy/rows.md that its answer follows from its arguments alone.
"""

from __future__ import annotations

from sqlglot import exp

_PARTS = """
Alias Boolean Case Column DataType DataTypeParam Identifier If Interval Literal Null Paren Star Tuple Var
"""
_OPERATORS = """
Add And AtTimeZone Between DPipe Div EQ Escape GT GTE ILike In IntDiv Is LT LTE Like Mod Mul NEQ Neg Not NullSafeEQ
NullSafeNEQ Or Sub Xor
"""
_FUNCTIONS = """
Abs Ascii Cast Ceil Chr Coalesce Concat ConcatWs Contains Date DateAdd DateDiff DateFromParts DateStrToDate DateSub
DateTrunc Datetime DatetimeTrunc Day DayOfMonth DayOfWeek DayOfWeekIso DayOfYear Dayname EndsWith Exp Extract Floor
Greatest Hex Hour Initcap LastDay Least Left Length Levenshtein Ln Log Lower MD5 Minute Month Monthname Nullif Pad Pow
Quarter RegexpExtract RegexpFullMatch RegexpILike RegexpLike RegexpReplace Repeat Replace Reverse Right Round SHA SHA2
Second Sign SimilarTo Split SplitPart Sqrt StartsWith StrPosition StrToDate StrToTime Substring TimeToStr TimestampTrunc
Translate Trim Trunc TryCast TsOrDsToDate TsOrDsToTimestamp Unicode UnixToTime Upper Week WeekOfYear Year
"""
# Of the rows of one group, in whatever order: floats that are added up may differ in their last bit by it.
_AGGREGATES = """
Avg Corr Count CountIf CovarPop CovarSamp Kurtosis LogicalAnd LogicalOr Max Median Min Skewness Stddev StddevPop
StddevSamp Sum Variance VariancePop
"""
_VARYING = """
CurrentDate CurrentDatetime CurrentTime CurrentTimestamp CurrentTimestampLTZ CurrentTransaction GenerateDouble
GenerateInt GenerateText GenerateBool Localtime Localtimestamp NextValueFor Normal Rand Randn Randstr Shuffle
Systimestamp Uniform UtcDate UtcTime UtcTimestamp Uuid Zipf CurrentUser SessionUser CurrentSession CurrentIpAddress
"""
_TYPES = """
BIGDECIMAL BIGINT BOOLEAN BPCHAR CHAR DATE DATETIME DECIMAL DOUBLE FLOAT INT INT128 INTERVAL LONGTEXT MEDIUMINT
MEDIUMTEXT NCHAR NVARCHAR SMALLINT TEXT TIME TIMESTAMP TIMESTAMPLTZ TIMESTAMPNTZ TIMESTAMPTZ TIMESTAMP_MS TIMESTAMP_NS
TIMESTAMP_S TIMETZ TINYINT TINYTEXT UBIGINT UINT USMALLINT UTINYINT UUID VARCHAR YEAR
"""


def _classes(names: str) -> frozenset[type[exp.Expr]]:
    return frozenset(getattr(exp, name) for name in names.split())


ROW_WISE = _classes(_PARTS + _OPERATORS + _FUNCTIONS)
AGGREGATES = _classes(_AGGREGATES)
VARYING = tuple(_classes(_VARYING))
VARYING_BARE = tuple(_classes("Date Datetime TsOrDsToDate Time"))  # without an argument: of the present moment
# Functions of any database that sqlglot has no class for; and words that are such ones without parentheses.
VARYING_FUNCTIONS = frozenset(
    """
    clock_timestamp statement_timestamp transaction_timestamp timeofday now today getdate sysdate systimestamp curdate
    curtime unix_timestamp utc_timestamp random rand randomblob setseed gen_random_uuid uuid uuid_generate_v1 uuidv4
    uuid_generate_v4 uuidv7 newid nextval currval lastval last_insert_rowid changes total_changes last_insert_id sleep
    connection_id txid_current pg_backend_pid pg_sleep get_current_timestamp get_current_time current_localtimestamp
    gen_random_bytes random_normal row_count found_rows localtime localtimestamp
    """.split()  # noqa: SIM905 a list of words
)
VARYING_WORDS = frozenset(
    ("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "sysdate", "systimestamp")
)
TYPES = frozenset(getattr(exp.DType, name) for name in _TYPES.split())
MOMENTS = frozenset(("now", "today", "tomorrow", "yesterday", "allballs"))
POSITIONS = frozenset(
    """
    rowid _rowid_ oid ctid xmin xmax cmin cmax tableoid rownum rowversion file_row_number file_index filename
    """.split()  # noqa: SIM905
)
ALLOWED_CLAUSES = frozenset(("expressions", "from_", "where", "group", "having"))
CLAUSES = {
    "limit": "LIMIT, TOP or FETCH: which rows come depends on which others are there",
    "offset": "OFFSET: which rows come depends on which others are there",
    "order": "ORDER BY: where a row stands depends on the others",
    "distinct": "DISTINCT: of equal rows of several people one comes",
    "qualify": "QUALIFY chooses rows by what it sees of others",
    "windows": "a window function (OVER) sees other rows",
    "sample": "a sample: which rows come may depend on which others are there",
    "joins": "a join: a row may come from several people, or a person's many times",
    "laterals": "LATERAL: a row may become many",
    "pivots": "PIVOT puts rows together",
    "with_": "WITH: a query in the query",
    "locks": "FOR UPDATE locks rows",
    "hint": "a hint",
    "connect": "CONNECT BY goes from row to row",
    "only": "ONLY: a part of a table's rows",
    "version": "a version of the table",
    "when": "a version of the table",
    "ordinality": "the number of a row among all",
    "match": "MATCH_RECOGNIZE sees other rows",
}
