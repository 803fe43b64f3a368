// The page: asks the server that it came from, and nobody else. Text goes into elements as text, never as markup.
'use strict'

const $ = id => document.getElementById(id)
const number = new Intl.NumberFormat('en')
const examples = ['German dictionary for spell checking', 'ALSA sound player', 'Perl module to talk to PostgreSQL databases',
  'Wayland compositor', 'a fast web browser', 'documentation for the kernel', 'Python library to read spreadsheets']
let info = null // of /v1/info
let token = sessionStorage.getItem('token') || ''

// ---- Asking -----------------------------------------------------------------------------------------------------------

async function ask(path, body, signal) {
  const headers = token ? { Authorization: 'Bearer ' + token } : {}
  const how = body ? { method: 'POST', body: JSON.stringify(body) } : {}
  if (body) headers['Content-Type'] = 'application/json'
  const reply = await fetch(path, { ...how, headers, signal, cache: 'no-store' })
  if (reply.status === 401) $('door').hidden = false
  if (!reply.ok) throw new Error((await reply.json()).error)
  return reply
}

// What the text means: words where the network reads them, else d numbers.
function question() {
  const text = $('text').value.trim()
  if (!text) return null
  const common = { k: Number($('k').value) }
  if (info.network && info.network.text) return { path: 'v1/predict', body: { text, ...common } }
  const query = text.split(/[\s,]+/).filter(Boolean).map(Number)
  if (query.some(Number.isNaN)) throw new Error('expected ' + info.d + ' numbers with spaces or commas between them')
  return { path: 'v1/search', body: { query, ...common } }
}

// ---- Answers ----------------------------------------------------------------------------------------------------------

const us = value => value >= 1000 ? (value / 1000).toFixed(2) + ' ms' : value.toFixed(1) + ' \u00b5s'

function show(table, reply, missed) {
  const result = reply && reply.results[0]
  const rows = (result ? result.answers : []).map(answer => {
    const row = document.createElement('tr'), name = row.insertCell(), score = row.insertCell()
    name.textContent = answer.name ?? 'class ' + answer.id
    score.textContent = answer.score.toFixed(3)
    score.className = 'number'
    if (missed && !missed.has(answer.id)) row.className = 'missed'
    return row
  })
  table.tBodies[0].replaceChildren(...rows)
  table.querySelector('.cost').textContent =
    result ? us(reply.us) + ', ' + number.format(result.candidates) + ' classes looked at' : ''
}

let running = null, waiting = 0

async function answer() {
  if (running) running.abort()
  const mine = running = new AbortController()
  try {
    const asked = info && question()
    $('problem').textContent = ''
    if (!asked) {
      show($('by-index'), null)
      show($('by-exact'), null)
      $('verdict').textContent = ''
      return
    }
    const probes = Number($('probes').value)
    const ours = await (await ask(asked.path, probes ? { ...asked.body, probes } : asked.body, mine.signal)).json()
    const full = info.exact_rows ? await (await ask(asked.path, { ...asked.body, exact: true }, mine.signal)).json() : null
    if (mine !== running) return
    const found = new Set(ours.results[0].answers.map(a => a.id))
    show($('by-index'), ours)
    show($('by-exact'), full, found)
    const known = ours.results[0].known === 0 ? 'The network knows no word of this. ' : ''
    if (full) {
      const exact = full.results[0].answers, had = exact.filter(a => found.has(a.id)).length
      const times = full.us / ours.us
      $('verdict').textContent = `${known}The index has ${had} of the ${exact.length} exact answers, ` +
        `${times.toFixed(times < 10 ? 1 : 0)} times as fast.`
    } else $('verdict').textContent = known + 'The index has no rows that exact answers need.'
  } catch (error) {
    if (error.name !== 'AbortError') $('problem').textContent = error.message
  }
}

function soon() { // while typing: when the keys rest for a moment
  clearTimeout(waiting)
  waiting = setTimeout(answer, 120)
}

// ---- Live -------------------------------------------------------------------------------------------------------------

const POINTS = 60, EVERY = 2000
const history = { requests: [], p50: [], p99: [], at1: [], at5: [] }
let last = null

function parse(text) {
  const values = new Map()
  for (const line of text.split('\n'))
    if (line && line[0] !== '#') values.set(line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1)))
  return values
}

// The latency below which a share of the requests between two samples stayed: the upper bound of its bucket, in seconds. The
// last bucket has none: then it is over the bound of the one before.
function quantile(now, before, share) {
  const buckets = []
  for (const [name, value] of now) {
    const bound = /^wideout_request_seconds_bucket\{le="(.*)"\}$/.exec(name)
    if (bound) buckets.push([bound[1] === '+Inf' ? Infinity : Number(bound[1]), value - (before.get(name) || 0)])
  }
  const all = buckets.length ? buckets[buckets.length - 1][1] : 0
  const at = all ? buckets.findIndex(([, n]) => n >= share * all) : -1
  if (at < 0) return null
  const over = buckets[at][0] === Infinity
  return { seconds: buckets[over ? at - 1 : at][0], over }
}

const latency = q => (q.over ? 'over ' : '') + us(1e6 * q.seconds)

function draw(id, lists, top, label) {
  const lines = lists.map((list, i) => {
    const line = document.createElementNS('http://www.w3.org/2000/svg', 'polyline')
    const points = list.map((v, x) => v === null ? null : `${(300 * (x + POINTS - list.length) / (POINTS - 1)).toFixed(1)},${(76 - 72 * Math.min(1, v / top)).toFixed(1)}`)
    const known = points.filter(Boolean)
    if (known.length === 1) known.unshift(known[0].replace(/^[^,]*/, x => x - 3)) // one point alone would not be seen
    line.setAttribute('points', known.join(' '))
    if (i) line.setAttribute('class', 'second')
    return line
  })
  $(id).replaceChildren(...lines)
  $(id).setAttribute('aria-label', label)
}

function push(list, value) {
  list.push(value)
  if (list.length > POINTS) list.shift()
}

async function sample() {
  try {
    const now = parse(await (await ask('metrics')).text()), at = performance.now()
    if (last) {
      const n = now.get('wideout_request_seconds_count') - last.now.get('wideout_request_seconds_count') - 1 // not this one
      push(history.requests, Math.max(0, n) / (at - last.at) * 1000)
      const p50 = quantile(now, last.now, 0.5), p99 = quantile(now, last.now, 0.99)
      push(history.p50, p50 && p50.seconds)
      push(history.p99, p99 && p99.seconds)
      push(history.at1, now.get('wideout_agreement{k="1"}') ?? null)
      push(history.at5, now.get('wideout_agreement{k="5"}') ?? null)
      const end = list => list[list.length - 1], most = list => Math.max(...list.map(v => v || 0))
      const rate = number.format(Math.round(end(history.requests)))
      const late = p99 ? `${latency(p50)}, ${latency(p99)}` : 'none'
      const agree = end(history.at1) === null ? 'not checked (--shadow)'
        : `${(100 * end(history.at1)).toFixed(1)}% of the best, ${(100 * end(history.at5)).toFixed(1)}% of five`
      $('requests-now').textContent = rate
      $('latency-now').textContent = late
      $('agreement-now').textContent = agree
      draw('requests', [history.requests], Math.max(1, most(history.requests)), 'Requests a second, now ' + rate)
      draw('latency', [history.p99, history.p50], Math.max(1e-6, most(history.p99)), 'Latency, now ' + late)
      draw('agreement', [history.at1, history.at5], 1, 'Agreement with all classes: ' + agree)
    }
    last = { now, at }
  } catch { /* the server is away, or wants a token: the next one may come through */ }
}

// ---- What is served ---------------------------------------------------------------------------------------------------

function describe() {
  const i = info, facts = [
    ['Index', i.index], ['Method', i.method], ['Classes', number.format(i.m)], ['Dimensions', number.format(i.d)],
    ['Cells', number.format(i.cells) + ' with ' + number.format(i.entries) + ' entries'],
    ['Size without rows', number.format(i.index_bytes) + ' bytes'], ['Prior', i.prior ? 'yes' : 'no'],
    ['Network', i.network ? i.network.arch + ', ' + number.format(i.network.inputs) + ' inputs' : 'none: it takes vectors'],
    ['Threads', i.threads], ['Version', i.version]]
  $('about').replaceChildren(...facts.flatMap(([name, value]) => {
    const dt = document.createElement('dt'), dd = document.createElement('dd')
    dt.textContent = name
    dd.textContent = value
    return [dt, dd]
  }))
  $('summary').textContent = `${number.format(i.m)} classes of ${i.d} dimensions, ${i.method}`
  const choices = [1, 2, 4, 8, 16, 32, 64].filter(n => n <= i.max_probes)
  $('probes').replaceChildren(new Option('as built', ''), ...choices.map(n => new Option(n, n)))
  $('exact-name').textContent = i.prior ? "Exact layer, with the index's prior" : 'Exact layer'
  const words = i.network && i.network.text
  $('text-label').textContent = words ? 'Text' : 'A query'
  $('hint').textContent = words ? 'Answers come while you type.' : i.d + ' numbers, with spaces or commas between them.'
}

let next = 0
function example() {
  const words = info.network && info.network.text
  $('text').value = words ? examples[next++ % examples.length]
    : Array.from({ length: info.d }, () => (2 * Math.random() - 1).toFixed(3)).join(' ')
  answer()
}

async function begin() {
  try {
    info = await (await ask('v1/info')).json()
    $('door').hidden = true
    describe()
    answer()
  } catch (error) {
    $('problem').textContent = error.message
  }
}

$('text').addEventListener('input', soon)
$('k').addEventListener('change', answer)
$('probes').addEventListener('change', answer)
$('example').addEventListener('click', () => info && example())
$('door').addEventListener('submit', event => {
  event.preventDefault()
  token = $('token').value.trim()
  sessionStorage.setItem('token', token)
  begin()
})
begin()
sample()
setInterval(sample, EVERY)
