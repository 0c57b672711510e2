
set session sql_mode = @posthaste_sql_mode;
set session collation_connection = @posthaste_collation;
