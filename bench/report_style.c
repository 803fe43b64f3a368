/* The page's style: one column on a phone, two of figures on a desk; dark and light; on paper too. Colours are
 * variables, which the pictures use as well (report_plot.c). No '<' and no '&' in here: the page is XML besides. */
#include "report_data.h"

const char *const report_style[] = {
    ":root{color-scheme:light dark;--ground:#ffffff;--card:#f6f8fa;--ink:#1f2328;--muted:#59636e;--line:#d8dde3;"
    "--accent:#b93c0a;--tint:#fdf1ea;--good:#1a7f37;--edge:rgba(31,35,40,.22);"
    "--s0:#c2410c;--s1:#6b7280;--s2:#0891b2;--s3:#7c3aed;--s4:#c026d3;--s5:#15803d;--s6:#2563eb;--s7:#65a30d;"
    "--s8:#854d0e;--s9:#be123c;--s10:#0f766e;--s11:#475569;--s12:#831843}\n",
    "@media screen and (prefers-color-scheme:dark){:root{--ground:#0f1216;--card:#171b21;--ink:#e6e9ed;"
    "--muted:#9aa4af;--line:#2d343d;--accent:#ff9a5c;--tint:#231a15;--good:#56d364;--edge:rgba(0,0,0,.75);"
    "--s0:#fb8b4a;--s1:#a3abb5;--s2:#38cbe6;--s3:#a78bfa;--s4:#e879f9;--s5:#4ade80;--s6:#6aa9ff;--s7:#a3e635;"
    "--s8:#e3b341;--s9:#fb7185;--s10:#2dd4bf;--s11:#cbd5e1;--s12:#f9a8d4}}\n",
    "*{box-sizing:border-box}\n",
    "html{background:var(--ground);color:var(--ink);font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,"
    "'Noto Sans','DejaVu Sans',sans-serif;-webkit-text-size-adjust:100%}\n",
    "body{max-width:76rem;margin:0 auto;padding:2.5rem 1.5rem 3rem;overflow-wrap:anywhere}\n",
    "h1{font-size:1.9rem;line-height:1.2;letter-spacing:-.015em;margin:0 0 .6rem}\n",
    "h2{font-size:1.35rem;line-height:1.25;letter-spacing:-.01em;margin:3.5rem 0 .2rem;padding-top:1.2rem;"
    "border-top:1px solid var(--line)}\n",
    "h3{font-size:1rem;margin:1.8rem 0 .5rem}\n",
    "p{margin:.5rem 0;max-width:48rem}\n",
    ".lead{font-size:1.12rem}.lead b{color:var(--accent);white-space:nowrap}\n",
    ".facts,.note{color:var(--muted);font-size:.9rem}\n",
    "a{color:inherit;text-decoration-color:var(--muted);text-underline-offset:.18em}\n",
    /* tables */
    ".frame{position:relative;margin:.8rem 0}.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:8px;"
    "overscroll-behavior-x:contain}\n",
    ".scroll.tall{max-height:40rem;overflow:auto}\n",
    /* The hints under a table that is wider or longer than its frame. The frame's own scrolling drives it: where
     * nothing can be scrolled the timeline is inactive and the hint has no height. Browsers without such timelines show
     * it on narrow screens. A shadow at the right edge goes with it, and leaves at the end of the way. */
    ".hint{margin:-.4rem 0 .8rem;font-size:.84rem;color:var(--muted);text-align:right;"
    "max-width:none}\n",
    "@supports not (animation-timeline:scroll()){@media (min-width:60rem){.hint{display:none}}}\n",
    "@supports (animation-timeline:scroll()){.wide{timeline-scope:--way,--down}.scroll{scroll-timeline:--way "
    "inline,--down block}"
    ".hint{visibility:hidden;max-height:0;margin:0;animation:hint linear "
    "both;animation-timeline:--way}.hint.down{animation-timeline:--down}"
    ".frame::after{content:'';position:absolute;z-index:4;top:0;right:0;bottom:0;width:1.6rem;opacity:0;"
    "border-radius:0 8px 8px 0;pointer-events:none;background:linear-gradient(to right,transparent,var(--edge));"
    "animation:edge linear both;animation-timeline:--way}}\n",
    "@keyframes hint{from,to{visibility:visible;max-height:3rem;margin:-.4rem 0 .8rem}}\n",
    "@keyframes edge{from,90%{opacity:1}to{opacity:0}}\n",
    ".scroll:focus-visible{outline:2px solid var(--accent);outline-offset:2px}\n",
    "table{border-collapse:separate;border-spacing:0;width:100%;font-size:.84rem;line-height:1.35;"
    "font-variant-numeric:tabular-nums;overflow-wrap:normal}\n",
    "th,td{padding:.42rem "
    ".7rem;text-align:right;vertical-align:baseline;white-space:nowrap;background:var(--ground)}\n",
    "td small,th small{color:var(--muted);font-weight:400;font-size:.92em}\n",
    "thead th{font-weight:600;color:var(--muted);background:var(--card);vertical-align:bottom}\n",
    "thead tr:last-child th{border-bottom:1px solid var(--line)}\n",
    "thead th[rowspan]{border-bottom:1px solid var(--line)}\n",
    "thead th[colspan]{text-align:center;border-left:1px solid var(--line);padding-bottom:.1rem}\n",
    "th:first-child{text-align:left}\n",
    "tbody th{font-weight:500;white-space:normal;min-width:9rem;max-width:18rem;overflow-wrap:anywhere}\n",
    ".many tbody th{min-width:15rem}\n",
    "tbody tr.first:not(:first-child) th,tbody tr.first:not(:first-child) td,.headline tbody tr:not(:first-child) th,"
    ".headline tbody tr:not(:first-child) td{border-top:1px solid var(--line)}\n",
    ".rows thead{position:sticky;top:0;z-index:2}\n",
    ".scroll tbody th{position:sticky;left:0;z-index:1;border-right:1px solid var(--line)}\n",
    ".scroll thead tr:first-child th:first-child{position:sticky;left:0;z-index:3;border-right:1px solid "
    "var(--line)}\n",
    ".ours th,.ours td{background:var(--tint)}\n",
    ".full th,.full td{font-weight:600}\n",
    ".headline td{vertical-align:baseline}.headline td small{display:block;white-space:normal}\n",
    ".headline td:nth-child(n+4):nth-child(-n+6){min-width:9.5rem}\n",
    ".headline tbody th{min-width:12rem}.headline thead th{white-space:normal;min-width:5.2rem}\n",
    "td.best{color:var(--accent);font-weight:700;font-size:1.12em}td.good{color:var(--good)}td.no{color:var(--muted)}"
    "\n",
    "tbody th i{display:inline-block;width:.62em;height:.62em;border-radius:50%;margin-right:.55em}\n",
    /* figures */
    ".figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,27rem),1fr));gap:2rem 2.5rem;"
    "margin:1rem 0 1.5rem;align-items:start}\n",
    "figure{margin:0;max-width:36rem}\n",
    "figcaption{font-size:.9rem;margin-bottom:.5rem}figcaption b{display:block;font-size:1rem;font-weight:600}"
    "figcaption span{color:var(--muted)}\n",
    "figure svg{display:block;width:100%;height:auto;color:var(--ink);font-family:inherit}\n",
    ".marks{position:absolute}\n",
    ".key{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1.1rem;margin:.6rem 0;padding:0;font-size:.86rem}\n",
    ".key li{display:flex;align-items:center;gap:.45rem;min-width:0}.key svg{width:26px;height:10px;flex:none}\n",
    /* how it was made */
    "footer{margin-top:3.5rem;padding-top:1.2rem;border-top:1px solid var(--line);font-size:.88rem}\n",
    "footer h2{border:0;margin:0 0 .5rem;padding:0;font-size:1.05rem}\n",
    "dl{display:grid;grid-template-columns:8rem 1fr;gap:.35rem 1rem;margin:0}dt{color:var(--muted)}dd{margin:0;"
    "min-width:0}dd+dd{grid-column:2}\n",
    "dd.no{color:var(--muted)}.words{grid-template-columns:9rem 1fr;gap:.5rem 1.5rem;font-size:.92rem;max-width:60rem;"
    "margin-top:.8rem}.words dt{color:var(--ink);font-weight:600}\n",
    "code{font:.92em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}\n",
    "@media (max-width:40rem){body{padding:1.5rem 1rem 2rem}h1{font-size:1.5rem}h2{margin-top:2.5rem}"
    ".scroll tbody th{min-width:8.5rem;max-width:8.5rem}"
    "th,td{padding:.4rem "
    ".55rem}dl{grid-template-columns:1fr;gap:0}dd+dd{grid-column:1}dt{margin-top:.6rem}.words{grid-template-columns:"
    "1fr;gap:0}thead th[colspan]{text-align:left}"
    ".scroll.tall{max-height:32rem}}\n",
    "@page{size:A4 landscape;margin:12mm}\n",
    "@media "
    "print{html{font-size:12px}body{max-width:none;padding:0}.hint,.frame::after{display:none}.scroll,.scroll.tall{"
    "overflow:visible;"
    "max-height:none;border:0}.rows thead,.scroll tbody th,.scroll thead tr:first-child th:first-child{position:static}"
    "table{font-size:8px}th,td{padding:.25rem .35rem;-webkit-print-color-adjust:exact;print-color-adjust:exact}"
    "tbody th{min-width:0;max-width:11rem}figure,tr{break-inside:avoid}h2,h3{break-after:avoid}"
    ".figures{grid-template-columns:1fr 1fr}figure{max-width:27rem}}\n",
    NULL,
};
