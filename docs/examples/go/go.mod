module posthaste.example/quickstart

go 1.19

require github.com/jackc/pgx/v5 v5.5.5
