-- Stored expressions keep the character set of the connection that made them: one of two or four
-- bytes a character spoils them. Some values of sql_mode read the text below in another way.
set @posthaste_collation = @@session.collation_connection,
    session collation_connection = utf8mb4_bin;
set @posthaste_sql_mode = @@session.sql_mode, session sql_mode = 'STRICT_ALL_TABLES';

