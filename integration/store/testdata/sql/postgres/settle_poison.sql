EXECUTE asyncmonolith_settle_7c6fd315b837ce15('{3}', 'poisoner', '{3}', '{20}', '{"poison"}', '{0}', '{""}', '{""}', 60000000, NULL, NULL);
