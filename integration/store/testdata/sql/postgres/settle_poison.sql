EXECUTE asyncmonolith_settle_b1e34aa7ad4f679e('{3}', 'poisoner', '{3}', '{20}', '{"poison"}', '{0}', '{""}', '{""}', 60000000, NULL, NULL, NULL);
