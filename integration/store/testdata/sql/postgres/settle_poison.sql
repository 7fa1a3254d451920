EXECUTE asyncmonolith_settle_9cab2cb478160f1c('{3}', 'poisoner', '{3}', '{20}', '{"poison"}', '{0}', '{""}', '{""}', 60000000);
