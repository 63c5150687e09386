// Says that scripts run, and sets the theme before anything is drawn. The rest is in viewer.js.
document.documentElement.classList.add("script");
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* private window */ }
