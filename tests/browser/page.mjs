// The server's page in a real browser: node page.mjs MODULES BROWSER ADDRESS SCREENSHOTS [TOKEN]. Speaks TAP.
// MODULES: the folder with node_modules. The server has a network of words, and answers on 127.0.0.1.
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'

const [modules, executablePath, address, shots, token] = process.argv.slice(2)
const require = createRequire(modules + '/')
const { chromium } = require('playwright-core')
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')
let n = 0, failed = 0

function check(name, fine, detail) {
  console.log(`${fine ? 'ok' : 'not ok'} ${++n} - ${name}`)
  if (!fine) failed++, console.log('    ' + String(detail === undefined ? '' : JSON.stringify(detail)).slice(0, 1500))
}

// What is wider than the window, or cut off.
function layout() {
  const wrong = [], root = document.documentElement
  if (root.scrollWidth > root.clientWidth) wrong.push(`page of ${root.scrollWidth} in ${root.clientWidth}`)
  for (const element of document.querySelectorAll('body *:not(svg *)')) {
    const box = element.getBoundingClientRect()
    if (box.width && (box.right > root.clientWidth + 1 || box.left < -1)) wrong.push('beyond the edge: ' + element.outerHTML.slice(0, 80))
  }
  return wrong
}

async function look(browser, width, scheme) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme })
  const page = await context.newPage(), said = [], asked = []
  const name = `${width} ${scheme}`
  page.on('console', message => ['error', 'warning'].includes(message.type()) && said.push(message.text()))
  page.on('pageerror', error => said.push(String(error)))
  page.on('request', request => asked.push(new URL(request.url()).host))
  await page.goto(address)
  if (token) {
    await page.waitForSelector('#door:not([hidden])')
    said.length = 0 // the browser itself tells of the 401
    await page.fill('#token', token)
    await page.keyboard.press('Enter')
  }
  await page.waitForFunction(() => document.querySelectorAll('#about dt').length > 5)
  check(`${name}: what is served`, (await page.textContent('#summary')).includes('classes of'), await page.textContent('#summary'))

  // By keys alone: to the text, type, and answers come while typing.
  await page.focus('#text')
  const words = (process.env.WORDS || 'a b').split(' ')
  await page.keyboard.type(words[0], { delay: 20 })
  await page.waitForSelector('#by-index tbody tr')
  await page.waitForSelector('#by-exact tbody tr')
  const list = () => page.$$eval('#by-exact tbody tr', rows => rows.map(row => row.textContent).join('|'))
  const first = await list()
  check(`${name}: answers with names and scores`, /^\S.*-?\d+\.\d{3}/.test(first), first)
  const prior = await page.evaluate(given => fetch('v1/info', { headers: given ? { Authorization: 'Bearer ' + given } : {} }).then(r => r.json()).then(i => i.prior), token)
  const caption = await page.textContent('#exact-name')
  check(`${name}: the exact side says whether it has the prior`, caption === (prior ? "Exact layer, with the index's prior" : 'Exact layer'), [prior, caption])
  check(`${name}: their cost beside them`, /(ms|µs), [\d,]+ classes looked at/.test(await page.textContent('#by-index caption')), await page.textContent('#by-index caption'))
  await page.keyboard.type(' ' + words.slice(1).join(' '), { delay: 20 })
  await page.waitForFunction(before => [...document.querySelectorAll('#by-exact tbody tr')].map(r => r.textContent).join('|') !== before, first)
  check(`${name}: they change while typing`, true)
  check(`${name}: index and exact are compared`, /^The index has \d+ of the \d+ exact answers/.test(await page.textContent('#verdict')), await page.textContent('#verdict'))
  await page.keyboard.press('Tab')
  check(`${name}: Tab goes on to the choices`, await page.evaluate(() => document.activeElement.id) === 'k')
  await page.selectOption('#k', '5')
  await page.waitForFunction(() => document.querySelectorAll('#by-exact tbody tr').length === 5)
  check(`${name}: fewer answers`, true)
  await page.click('#example')
  await page.waitForFunction(() => document.querySelector('#text').value.length > 0)

  // Live charts: two samples make a point.
  await page.waitForFunction(() => document.querySelector('#requests polyline')?.getAttribute('points'), null, { timeout: 15000 })
  check(`${name}: the chart of requests is drawn and named`, /now \d/.test(await page.getAttribute('#requests', 'aria-label')))
  await page.waitForFunction(() => /% of the best/.test(document.querySelector('#agreement-now').textContent), null, { timeout: 20000 })
  check(`${name}: agreement is told`, true)

  // Requests that took longer than the last bound: of each sample a million more.
  let slow = 0
  await page.route('**/metrics', async route => {
    const reply = await route.fetch(), text = await reply.text()
    await route.fulfill({ response: reply, body: text.replace(/(wideout_request_seconds_bucket\{le="\+Inf"\}|wideout_request_seconds_count) (\d+)/g, (_, key, n) => `${key} ${Number(n) + 1e6 * ++slow}`) })
  })
  await page.waitForFunction(() => /^over \S+.*, over /.test(document.querySelector('#latency-now').textContent), null, { timeout: 20000 })
  check(`${name}: a latency beyond the last bound is told`, true)
  const drawn = await page.$$eval('#latency polyline', lines => lines.map(line => line.getAttribute('points')))
  check(`${name}: and drawn`, drawn.length === 2 && drawn.every(points => points && !/NaN|Infinity/.test(points)), drawn)
  await page.unroute('**/metrics')

  check(`${name}: nothing is cut off`, (await page.evaluate(layout)).length === 0, await page.evaluate(layout))
  const tops = await page.$$eval('figure svg', charts => charts.map(c => c.getBoundingClientRect()).map(b => Math.round(b.top)))
  check(`${name}: the charts stand in one row, or one below the other`, new Set(tops).size === (width > 700 ? 1 : 3), tops)
  const ground = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor.match(/\d+/g).slice(0, 3).map(Number))
  check(`${name}: it is ${scheme}`, (ground[0] + ground[1] + ground[2] < 3 * 128) === (scheme === 'dark'), ground)
  await page.evaluate(axe + '; undefined')
  const found = await page.evaluate(() => window.axe.run().then(r => r.violations.filter(v => ['serious', 'critical', 'moderate'].includes(v.impact)).map(v => v.id + ': ' + v.nodes.map(n => n.html).join(' '))))
  check(`${name}: axe finds nothing`, found.length === 0, found)
  await page.screenshot({ path: `${shots}/page-${width}-${scheme}.png`, fullPage: true })
  await page.fill('#text', '')
  await page.waitForFunction(() => !document.querySelector('#by-index tbody tr'))
  check(`${name}: no text, no answers`, await page.textContent('#verdict') === '')
  check(`${name}: no error in the console`, said.length === 0, said)
  check(`${name}: it asks nobody else`, asked.every(host => host === new URL(address).host), asked)
  await context.close()
}

// The last four: a browser that is started asks its makers for this and that, which takes its time in a closed network.
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
  '--disable-background-networking', '--no-first-run', '--disable-sync', '--disable-quic'] })
try {
  const sizes = token ? [[390, 'dark']] : [[390, 'dark'], [390, 'light'], [1200, 'dark'], [1200, 'light']]
  await Promise.all(sizes.map(([width, scheme]) => look(browser, width, scheme))) // most of it is waiting for the charts
} catch (error) {
  check('the page does what it should', false, String(error))
} finally {
  await browser.close()
}
console.log(`1..${n}`)
process.exit(failed ? 1 : 0)
