// Put into a copy of a page by tests/cli/report.sh: looks at the page as the browser has laid it out and tells what is
// wrong, or "fine", with the width and the scheme, to the page whose frame it is in.
//
// Wrong: a page wider than the window; an element beyond the window's edge, or text cut off by its own box, outside
// of containers that scroll; text of a picture outside of it, upon other text of it, or hardly darker (lighter) than
// the page; a table that can be scrolled without a hint that says so, or a hint where it cannot.
'use strict'
const settled = () => new Promise(done => setTimeout(done, 500)) // scroll timelines follow the first frames
addEventListener('load', async () => {
  await settled()
  const wrong = []
  const root = document.documentElement
  const say = (what, element) => wrong.push(what + ' "' + element.textContent.trim().slice(0, 40) + '"')
  if (root.scrollWidth > root.clientWidth) wrong.push('page of ' + root.scrollWidth + ' in ' + root.clientWidth)

  for (const element of document.querySelectorAll('body *:not(svg *)')) {
    if (element.closest('.scroll') && !element.matches('.scroll')) continue
    const box = element.getBoundingClientRect()
    if (box.right > root.clientWidth + 1 || box.left < -1) say('beyond the edge', element)
    if (!element.matches('.scroll, svg') && element.scrollWidth > element.clientWidth + 1 && element.clientWidth)
      say('cut off', element)
  }
  for (const cell of document.querySelectorAll('th, td'))
    if (cell.scrollWidth > cell.clientWidth + 1) say('cell cut off', cell)

  for (const frame of document.querySelectorAll('.scroll')) {
    const shown = hint => { // its text lies within the window
      const box = frame.closest('.wide').querySelector(hint).getBoundingClientRect()
      return box.height > 10 && box.left >= 0 && box.right <= root.clientWidth
    }
    if (frame.scrollWidth > frame.clientWidth + 1 !== shown('.hint:not(.down)')) say('hint of sideways', frame)
    if (frame.scrollHeight > frame.clientHeight + 1 !== shown('.hint.down')) say('hint of downwards', frame)
  }
  if (!document.querySelector('#words + dl dt') || !document.querySelector('#made + dl dt')) wrong.push('no words')

  const numbers = colour => colour.match(/[\d.]+/g).slice(0, 3).map(Number)
  const light = colour => {
    const [r, g, b] = numbers(colour).map(v => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const ground = light(getComputedStyle(root).backgroundColor)
  for (const picture of document.querySelectorAll('figure svg')) {
    const frame = picture.getBoundingClientRect()
    const texts = [...picture.querySelectorAll('text')]
    const boxes = texts.map(text => text.getBoundingClientRect())
    boxes.forEach((a, i) => {
      if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1)
        say('outside of its picture', texts[i])
      const ink = light(getComputedStyle(texts[i]).fill)
      const contrast = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05)
      if (contrast < 4) say('contrast of ' + contrast.toFixed(1), texts[i])
      for (const b of boxes.slice(i + 1)) // 3: the air above and below letters
        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
          say('upon another', texts[i])
    })
  }
  const scheme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'
  if (!document.querySelector('table')) wrong.push('no table')
  parent.postMessage('measured: ' + innerWidth + ' ' + scheme + ', ' + (wrong.slice(0, 8).join('; ') || 'fine'), '*')
})
