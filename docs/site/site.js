// What mdBook's own pages lack: landmarks and names for screen readers, code that the keyboard
// can scroll, and the choice of a version. `siteVersions` is written by tests/package/docs.sh.
(() => {
  'use strict';

  const bar = document.getElementById('mdbook-menu-bar');
  bar.setAttribute('role', 'banner');
  // A label is no button, and the keyboard does not reach it.
  const label = document.getElementById('mdbook-sidebar-toggle');
  const sidebar = document.getElementById('mdbook-sidebar-toggle-anchor');
  const toggle = document.createElement('button');
  toggle.type = 'button';
  toggle.className = label.className;
  toggle.title = 'Table of contents';
  toggle.setAttribute('aria-label', toggle.title);
  toggle.setAttribute('aria-controls', 'mdbook-sidebar');
  toggle.append(...label.childNodes);
  const expanded = () => toggle.setAttribute('aria-expanded', String(sidebar.checked));
  toggle.addEventListener('click', () => label.click());
  sidebar.addEventListener('change', expanded);
  expanded();
  label.before(toggle);
  label.hidden = true;
  document.getElementById('mdbook-help-container').setAttribute('role', 'dialog');
  document.getElementById('mdbook-help-container').setAttribute('aria-label', 'Keyboard shortcuts');
  // The name of the book is on each page; its own heading is the first one of the text.
  document.querySelector('.menu-title').setAttribute('role', 'presentation');

  const search = document.getElementById('mdbook-searchbar');
  search.setAttribute('aria-label', 'Search the documents');
  document.getElementById('mdbook-search-wrapper').setAttribute('role', 'search');

  for (const block of document.querySelectorAll('pre > code, .table-wrapper')) {
    if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
  }

  const { here, versions } = siteVersions;
  if (Object.keys(versions).length < 2) return;
  const home = new URL(path_to_root || './', location.href);
  const page = decodeURIComponent(location.href.slice(home.href.length).replace(/[?#].*/, '')) || 'index.html';
  const site = here === 'main' ? home : new URL('../', home);
  const choice = document.createElement('select');
  choice.className = 'site-versions';
  choice.setAttribute('aria-label', 'Version of the documents');
  for (const [version, pages] of Object.entries(versions)) {
    const folder = version === 'main' ? '' : `${version}/`;
    const target = new URL(folder + (pages.includes(page) ? page : 'index.html'), site);
    choice.add(new Option(version, target.href, false, version === here));
  }
  choice.addEventListener('change', () => location.assign(choice.value));
  bar.querySelector('.right-buttons').prepend(choice);
})();
