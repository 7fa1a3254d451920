package mariadb

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const (
	safetySQL      = `SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'innodb_doublewrite')`
	connectionsSQL = `SHOW GLOBAL STATUS WHERE Variable_name = 'Threads_connected'`
	mostSQL        = `SHOW GLOBAL VARIABLES WHERE Variable_name = 'max_connections'`
	historySQL     = `SHOW GLOBAL STATUS WHERE Variable_name = 'Innodb_history_list_length'`

	// indexesSQL lists the indexes of the database with our tables.
	indexesSQL = `SELECT DISTINCT s.INDEX_NAME AS name, TRUE AS valid FROM information_schema.STATISTICS s WHERE s.TABLE_SCHEMA = DATABASE()`

	// holdersSQL reads when transactions began. InnoDB returns that in the server's time zone,
	// whatever the session's is. It does not return the user of a transaction, nor whether it has a
	// snapshot yet.
	holdersSQL = `SELECT 'transaction' AS kind, t.trx_mysql_thread_id AS pid, '' AS name, 0 AS behind,
  {now} - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + TIMESTAMPDIFF(MICROSECOND, t.trx_started, CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', 'SYSTEM')) AS micros
FROM information_schema.INNODB_TRX t WHERE t.trx_mysql_thread_id <> CONNECTION_ID() ORDER BY t.trx_started LIMIT 20`
)

// Diagnose reads variables and statistics. To see other users' transactions takes the privilege
// PROCESS.
func (m *database) Diagnose(ctx context.Context, db bun.IDB, part dialect.Vital) (d dialect.Diagnosis, err error) {
	switch part {
	case dialect.Weaknesses:
		var found []variable
		err = db.NewRaw(safetySQL).Scan(ctx, &found)
		d.Weaknesses = weaknesses(found)
	case dialect.Connections:
		if d.Used, err = number(ctx, db, connectionsSQL); err == nil {
			d.Most, err = number(ctx, db, mostSQL)
		}
	case dialect.Indexes:
		err = db.NewRaw(indexesSQL).Scan(ctx, &d.Indexes)
	case dialect.DeadRows:
		var n int
		n, err = number(ctx, db, historySQL)
		d.HistoryList = int64(n)
	case dialect.Holders:
		err = m.Query(ctx, db, holdersSQL).Scan(ctx, &d.Holders)
	default:
		d.Absent = true
	}
	return d, err
}

// variable is a row of SHOW.
type variable struct {
	Name  string `bun:"Variable_name"`
	Value string `bun:"Value"`
}

// number returns the value of the one variable that a statement shows, or 0 if the server has no
// such variable.
func number(ctx context.Context, db bun.IDB, statement string) (int, error) {
	var found []variable
	if err := db.NewRaw(statement).Scan(ctx, &found); err != nil || len(found) == 0 {
		return 0, err
	}
	return strconv.Atoi(found[0].Value)
}

func weaknesses(found []variable) (weak []dialect.Weakness) {
	for _, v := range found {
		value := strings.ToUpper(v.Value)
		switch {
		case strings.EqualFold(v.Name, "innodb_flush_log_at_trx_commit") && !slices.Contains([]string{"1", "3"}, value):
			weak = append(weak, dialect.Weakness{Name: v.Name, Value: v.Value, Want: "1"})
		case strings.EqualFold(v.Name, "innodb_doublewrite") && slices.Contains([]string{"OFF", "0"}, value):
			weak = append(weak, dialect.Weakness{Name: v.Name, Value: v.Value, Want: "ON", Damages: true})
		}
	}
	return weak
}
