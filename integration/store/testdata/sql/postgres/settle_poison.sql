EXECUTE asyncmonolith_settle_c818022d368fc783('{3}', 'poisoner', '{3}', '{20}', '{"poison"}', '{0}', '{""}', '{""}', 60000000, NULL, NULL);
