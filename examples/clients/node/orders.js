// A client without Python: it processes the queue "orders" through its stored functions, until nothing is ready.
// pg reads the connection from the environment (PGHOST, PGUSER, ...); TABLEQUEUE_SCHEMA is the schema of the queue.
//
//     npm install && node orders.js push '{"id": 7}'      one message
//     node orders.js work                                 pop, do the work, complete; or fail
//     node orders.js take                                 the message and the work in one transaction
import pg from "pg";

const schema = process.env.TABLEQUEUE_SCHEMA ?? "public";
const orders = (verb) => `${pg.escapeIdentifier(schema)}.tq_orders_${verb}`;
const client = new pg.Client();

async function push(payload) {
  const { rows } = await client.query(`select ${orders("push")}($1, p_producer => 'node') as id`, [payload]);
  console.log(rows[0].id);
}

async function work() {
  for (;;) {
    const { rows } = await client.query(`select * from ${orders("pop")}(10, 'node', p_lease => 30)`);
    if (rows.length === 0) return;
    for (const { id, token, attempts, payload } of rows) {
      try {
        if (JSON.stringify(payload).includes("bad")) throw new Error("what node cannot do"); // the work
        await client.query(`select ${orders("complete")}(array[$1::bigint], $2)`, [id, token]);
        console.log(`done ${id} ${JSON.stringify(payload)}`);
      } catch (error) {
        if (error.code === "TQ003") continue; // the lease was lost: another consumer has it
        await client.query(`select ${orders("fail")}($1, $2, $3)`, [id, token, error.message]);
        console.log(`failed ${id}, attempt ${attempts}`);
      }
    }
  }
}

async function take() {
  await client.query("begin");
  const { rows } = await client.query(`select id, payload from ${orders("take")}(1, 'node')`);
  // What the work writes goes here, in the same transaction: a rollback puts the message back.
  await client.query("commit");
  for (const { id, payload } of rows) console.log(`took ${id} ${JSON.stringify(payload)}`);
}

const [verb, payload] = process.argv.slice(2);
const run = { push: () => push(payload), work, take }[verb];
if (!run) {
  console.error("node orders.js push PAYLOAD | work | take");
  process.exit(2);
}
await client.connect();
try {
  await run();
} finally {
  await client.end();
}
