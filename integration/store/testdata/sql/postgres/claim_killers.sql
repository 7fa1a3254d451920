BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL statement_timeout = '5s';
	SET LOCAL work_mem = '16MB'; SET LOCAL jit = off; SET LOCAL plan_cache_mode = force_generic_plan;

EXECUTE asyncmonolith_pick_crashed_9e9d5f5c114a3336('{"send-receipt","update-stock"}', '{"order.placed","order.placed"}', 2, 32767, 1);

COMMIT;
