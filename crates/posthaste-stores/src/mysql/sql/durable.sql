-- Whether whatever is visible is durable: the binary log and the redo log are written at each
-- commit before anybody sees it.
select @@global.log_bin = 1 and @@global.sync_binlog = 1
    and @@global.innodb_flush_log_at_trx_commit = 1
